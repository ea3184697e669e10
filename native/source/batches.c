/* The messages of a batch as columns. Reference and description: ../pure/batches.py. */
#include "parts.h"

enum { METADATA, PAYLOAD, PAYLOAD_END, KEY, KEY_END, EVENT_TIME, INDEX, FLAGS, FIELDS };
enum { HAS_KEY = 1, IS_NULL = 2, IS_REMOVED = 4, HAS_PROPERTIES = 8 };

/* Fills in a row from the metadata at data[at:end]; 0: it is not in its usual form. */
static int read_metadata(const uint8_t *data, int64_t at, int64_t end, int64_t *row)
{
    int64_t size = -1;
    row[METADATA] = row[KEY] = row[KEY_END] = at;
    row[EVENT_TIME] = row[FLAGS] = 0;
    while (at < end) {
        int64_t value = 0, more = 1;
        uint8_t tag = data[at++];
        for (int shift = 0; more && shift < 63 && at < end; shift += 7) {
            more = data[at] & 0x80;
            value |= (int64_t)(data[at++] & 0x7F) << shift;
        }
        if (more || ((tag & 7) == 2 && value > end - at))
            return 0;
        int64_t flag = tag == 0x20 ? IS_REMOVED : IS_NULL;
        switch (tag) {
        case 0x0A: row[FLAGS] |= HAS_PROPERTIES; break;
        case 0x12: row[FLAGS] |= HAS_KEY; row[KEY] = at; row[KEY_END] = at + value; break;
        case 0x18: size = value; break;
        case 0x28: row[EVENT_TIME] = value; break;
        case 0x20: case 0x48: row[FLAGS] = value ? row[FLAGS] | flag : row[FLAGS] & ~flag; break;
        case 0x30: if (value) return 0; break;
        case 0x3A: case 0x40: case 0x50: break;
        default: return 0;
        }
        at += (tag & 7) == 2 ? value : 0;
    }
    row[PAYLOAD] = end;
    row[PAYLOAD_END] = end + (size & INT32_MAX);
    return size >= 0 && size <= INT32_MAX;
}

static PyObject *batch_rows(PyObject *module, PyObject *arguments)
{
    const uint8_t *data;
    Py_ssize_t length;
    long long count, flags = 0, at = 0;
    if (!PyArg_ParseTuple(arguments, "y#L", (const char **)&data, &length, &count))
        return NULL;
    if (count < 0 || count > length / 6)
        Py_RETURN_NONE;
    PyObject *table = PyBytes_FromStringAndSize(NULL, count * FIELDS * 8);
    int64_t *row = table ? (int64_t *)PyBytes_AS_STRING(table) : NULL;
    for (int64_t index = 0; table && index < count; index++, row += FIELDS) {
        long long end = length - at < 4 ? length + 1 : at + 4 + vela_u32(data + at);
        if (end > length || !read_metadata(data, at + 4, end, row) || row[PAYLOAD_END] > length) {
            Py_DECREF(table);
            Py_RETURN_NONE;
        }
        row[INDEX] = index;
        flags |= row[FLAGS];
        at = row[PAYLOAD_END];
    }
    return table ? Py_BuildValue("NL", table, flags) : NULL;
}

PyMethodDef vela_batch_functions[] = {
    {"batch_rows", batch_rows, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
