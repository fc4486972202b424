/* A Python module that lies beside its Python part, and needs a library that lies elsewhere. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern long counted(const char *text);

static PyObject *count(PyObject *self, PyObject *argument) {
    (void)self;
    const char *text = PyUnicode_AsUTF8(argument);
    return text ? PyLong_FromLong(counted(text)) : NULL;
}

static PyMethodDef methods[] = {
    {"count", count, METH_O, "Counts."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_native(void) { return PyModule_Create(&module); }
