/* native._extension: the functions of all parts as one module of Python. */
#include "extension.h"

#define FUNCTION(name) {#name, name, METH_VARARGS, NULL}
static PyMethodDef functions[] = {
    FUNCTION(ack_table),
    FUNCTION(batch_rows),
    FUNCTION(crc32c),
    FUNCTION(crc32c_bodies),
    FUNCTION(crc32c_payloads),
    FUNCTION(log_records),
    FUNCTION(message_frames),
    FUNCTION(message_heads),
    FUNCTION(message_run),
    FUNCTION(put_records),
    FUNCTION(read_sends),
    FUNCTION(send_strip),
    FUNCTION(strip_place),
    FUNCTION(update_slots),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef extension = {
    PyModuleDef_HEAD_INIT,
    .m_name = "native._extension",
    .m_size = -1, /* the type of the tables and their secret are of the process */
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__extension(void) {
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
        return PyErr_Format(PyExc_ImportError, "this processor has no SSE 4.2 or no PCLMULQDQ");
    if (prepare_ack_tables() < 0) return NULL;
    return PyModule_Create(&extension);
}
