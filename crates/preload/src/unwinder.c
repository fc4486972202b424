/* The unwinder of libgcc, found when it is first needed. Owns that the recorder does not name that library
 * as one that it needs: to load it costs a program as much again as the recorder itself, and nearly none of
 * them unwinds. A thread that is cancelled does, and the C library loads it then in just this way. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define HIDDEN __attribute__((visibility("hidden")))

static void *find(void **known, const char *name)
{
    void *found = __atomic_load_n(known, __ATOMIC_ACQUIRE);
    if (found == NULL) {
        void *library = dlopen("libgcc_s.so.1", RTLD_NOW);
        found = library == NULL ? NULL : dlsym(library, name);
        if (found == NULL)
            abort();
        __atomic_store_n(known, found, __ATOMIC_RELEASE);
    }
    return found;
}

/* Of the same name; all arguments and results are words. */
#define UNWIND(result, name, parameters, arguments)                                                \
    HIDDEN result name parameters;                                                                 \
    HIDDEN result name parameters                                                                  \
    {                                                                                              \
        static void *known;                                                                        \
        void *found = find(&known, #name);                                                         \
        return ((__typeof__(&name))(uintptr_t)found)arguments;                                     \
    }

typedef uintptr_t word;

UNWIND(word, _Unwind_Backtrace, (word trace, word argument), (trace, argument))
UNWIND(word, _Unwind_GetDataRelBase, (word context), (context))
UNWIND(word, _Unwind_GetIP, (word context), (context))
UNWIND(word, _Unwind_GetIPInfo, (word context, word before), (context, before))
UNWIND(word, _Unwind_GetLanguageSpecificData, (word context), (context))
UNWIND(word, _Unwind_GetRegionStart, (word context), (context))
UNWIND(word, _Unwind_GetTextRelBase, (word context), (context))
UNWIND(word, _Unwind_RaiseException, (word exception), (exception))
UNWIND(word, _Unwind_Resume, (word exception), (exception))
UNWIND(word, _Unwind_SetGR, (word context, word index, word value), (context, index, value))
UNWIND(word, _Unwind_SetIP, (word context, word value), (context, value))
UNWIND(word, _Unwind_DeleteException, (word exception), (exception))
UNWIND(word, _Unwind_GetCFA, (word context), (context))
UNWIND(word, _Unwind_FindEnclosingFunction, (word place), (place))
