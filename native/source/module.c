/* The module native._extension: the functions of all parts. */
#include "parts.h"

#define METHOD(name) {#name, vela_##name, METH_VARARGS, NULL},
static PyMethodDef functions[] = {VELA_FUNCTIONS(METHOD){NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "native._extension", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__extension(void) {
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return PyModule_Create(&definition);
    return PyErr_Format(PyExc_ImportError, "this processor has no SSE 4.2 or no PCLMULQDQ");
}
