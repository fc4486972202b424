/* The C library's functions with a list of arguments of any length. Only C can read such a list, so
 * these gather it and go on in Rust. Rust exports them: see calls/variadic.rs. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int azekura_execute_list(const char *path, const char *const *argv, char *const *environment,
                         int searches);

int azekura_print(FILE *stream, const char *format, void *list);
int azekura_print_checked(FILE *stream, int flag, const char *format, void *list);

int azekura_fprintf(FILE *stream, const char *format, ...);
int azekura_vfprintf(FILE *stream, const char *format, va_list list);
int azekura_fprintf_chk(FILE *stream, int flag, const char *format, ...);
int azekura_vfprintf_chk(FILE *stream, int flag, const char *format, va_list list);
int azekura_execl(const char *path, const char *first, ...);
int azekura_execlp(const char *path, const char *first, ...);
int azekura_execle(const char *path, const char *first, ...);
int azekura_vdprintf(int fd, const char *format, va_list list);
int azekura_dprintf(int fd, const char *format, ...);
int azekura_dprintf_chk(int fd, int flag, const char *format, ...);
int azekura_vdprintf_chk(int fd, int flag, const char *format, va_list list);

static size_t count(const char *first, va_list list)
{
    size_t words = 0;
    while (first != NULL) {
        words++;
        first = va_arg(list, const char *);
    }
    return words;
}

/* Fills in the words and the null pointer after them. */
static void gather(const char **argv, const char *first, va_list *list)
{
    while (first != NULL) {
        *argv++ = first;
        first = va_arg(*list, const char *);
    }
    *argv = NULL;
}

static size_t words_of(const char *first, va_list list)
{
    va_list copy;
    va_copy(copy, list);
    size_t words = count(first, copy);
    va_end(copy);
    return words;
}

int azekura_execl(const char *path, const char *first, ...)
{
    va_list list;
    va_start(list, first);
    const char *argv[words_of(first, list) + 1];
    gather(argv, first, &list);
    va_end(list);
    return azekura_execute_list(path, argv, NULL, 0);
}

int azekura_execlp(const char *path, const char *first, ...)
{
    va_list list;
    va_start(list, first);
    const char *argv[words_of(first, list) + 1];
    gather(argv, first, &list);
    va_end(list);
    return azekura_execute_list(path, argv, NULL, 1);
}

int azekura_execle(const char *path, const char *first, ...)
{
    static char *const none[] = {NULL};
    va_list list;
    va_start(list, first);
    const char *argv[words_of(first, list) + 1];
    gather(argv, first, &list);
    char *const *environment = va_arg(list, char *const *);
    va_end(list);
    return azekura_execute_list(path, argv, environment != NULL ? environment : none, 0);
}

/* As the C library's, but through the hook of `write`. */
int azekura_vdprintf(int fd, const char *format, va_list list)
{
    char *text;
    int bytes = vasprintf(&text, format, list);
    if (bytes < 0)
        return -1;
    int done = 0;
    while (done < bytes) {
        ssize_t written = write(fd, text + done, (size_t)(bytes - done));
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        done += (int)written;
    }
    free(text);
    return done == bytes ? bytes : -1;
}

int azekura_dprintf(int fd, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int result = azekura_vdprintf(fd, format, list);
    va_end(list);
    return result;
}

int azekura_dprintf_chk(int fd, int flag, const char *format, ...)
{
    (void)flag;
    va_list list;
    va_start(list, format);
    int result = azekura_vdprintf(fd, format, list);
    va_end(list);
    return result;
}

int azekura_vdprintf_chk(int fd, int flag, const char *format, va_list list)
{
    (void)flag;
    return azekura_vdprintf(fd, format, list);
}

/* A list of arguments goes to Rust, and from there to the C library, by its address, which is how it is
 * passed on the supported machines. */
int azekura_vfprintf(FILE *stream, const char *format, va_list list)
{
    va_list own;
    va_copy(own, list);
    int result = azekura_print(stream, format, &own);
    va_end(own);
    return result;
}

int azekura_fprintf(FILE *stream, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int result = azekura_print(stream, format, &list);
    va_end(list);
    return result;
}

int azekura_vfprintf_chk(FILE *stream, int flag, const char *format, va_list list)
{
    va_list own;
    va_copy(own, list);
    int result = azekura_print_checked(stream, flag, format, &own);
    va_end(own);
    return result;
}

int azekura_fprintf_chk(FILE *stream, int flag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int result = azekura_print_checked(stream, flag, format, &list);
    va_end(list);
    return result;
}
