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
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddFunctions(module, vela_checksum_functions) < 0)
        Py_CLEAR(module);
    if (module && PyModule_AddFunctions(module, vela_batch_functions) < 0)
        Py_CLEAR(module);
    return module;
}
