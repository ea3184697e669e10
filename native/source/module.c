/* The module native._extension: the functions of all parts. */
#include "parts.h"

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "native._extension", NULL, -1, NULL};

PyMODINIT_FUNC PyInit__extension(void)
{
    if (!__builtin_cpu_supports("sse4.2")) {
        PyErr_SetString(PyExc_ImportError, "this processor has no SSE 4.2");
        return NULL;
    }
    vela_crc32c_prepare();
    PyMethodDef *parts[] = {vela_batch_functions, vela_broadcast_functions, vela_checksum_functions, vela_delivering_functions,
                            vela_reading_functions, vela_writing_functions, NULL};
    PyObject *module = PyModule_Create(&definition);
    for (PyMethodDef **part = parts; module && *part; part++)
        if (PyModule_AddFunctions(module, *part) < 0)
            Py_CLEAR(module);
    return module;
}
