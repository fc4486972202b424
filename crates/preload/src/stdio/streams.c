/* Streams of the C library on files of the pool: cookie streams whose reads and writes go through the
 * hooks. Owns what needs to know the C library's own form of a stream: that `fileno` gives the
 * descriptor, and what of a standard stream goes over to the one that takes its place. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Bits of `_flags` that are part of the C library's binary interface. */
#define FLAG_UNBUFFERED 0x0002
#define FLAG_NO_READS 0x0004
#define FLAG_NO_WRITES 0x0008
#define FLAG_LINE_BUFFERED 0x0200
#define FLAG_APPENDING 0x1000

enum { BUFFER_BYTES = 64 << 10 };
/* What a standard stream holds back at most when its descriptor changes, as one of the C library
 * would. */
enum { PENDING_BYTES_MAX = 4096 };

FILE *azekura_stream_new(int fd, const char *mode);
int azekura_stream_is_ours(FILE *stream);
void azekura_stream_set_mode(FILE *stream, int reads, int writes, int appends);
void azekura_standard_flush(int fd);
void azekura_standard_ours(int fd);
void azekura_standard_hosts(int fd);
int azekura_standard_forget(FILE *stream);
FILE *azekura_standard_current(int fd);

struct cookie {
    int fd;
    char *buffer;
};

/* How a stream with a cookie lies in memory. */
struct cookie_stream {
    FILE stream;
    const void *functions;
    struct cookie *cookie;
    cookie_io_functions_t calls;
};

static ssize_t stream_read(void *cookie, char *into, size_t bytes)
{
    return read(((struct cookie *)cookie)->fd, into, bytes);
}

static ssize_t stream_write(void *cookie, const char *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t written = write(((struct cookie *)cookie)->fd, data + done, bytes - done);
        if (written < 0 && errno == EINTR && done > 0)
            continue;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    /* The C library takes 0 for a failure. */
    return (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *place, int whence)
{
    off64_t found = lseek64(((struct cookie *)cookie)->fd, *place, whence);
    if (found < 0)
        return -1;
    *place = found;
    return 0;
}

static int stream_close(void *cookie)
{
    struct cookie own = *(struct cookie *)cookie;
    free(cookie);
    int result = close(own.fd);
    free(own.buffer);
    return result;
}

static const cookie_io_functions_t calls = {stream_read, stream_write, stream_seek, stream_close};

FILE *azekura_stream_new(int fd, const char *mode)
{
    struct cookie *cookie = malloc(sizeof *cookie);
    if (cookie == NULL)
        return NULL;
    cookie->fd = fd;
    cookie->buffer = malloc(BUFFER_BYTES);
    FILE *stream = fopencookie(cookie, mode, calls);
    if (stream == NULL) {
        free(cookie->buffer);
        free(cookie);
        return NULL;
    }
    if (cookie->buffer != NULL)
        setvbuf(stream, cookie->buffer, _IOFBF, BUFFER_BYTES);
    stream->_fileno = fd;
    return stream;
}

int azekura_stream_is_ours(FILE *stream)
{
    /* The C library keeps pointers to functions in a disguise, which is the same for all streams. */
    static cookie_read_function_t *disguised;
    static const void *functions;
    if (__atomic_load_n(&functions, __ATOMIC_ACQUIRE) == NULL) {
        static const cookie_io_functions_t reading = {stream_read, NULL, NULL, NULL};
        FILE *sample = fopencookie(NULL, "r", reading);
        if (sample == NULL)
            return 0;
        struct cookie_stream *whole = (struct cookie_stream *)(void *)sample;
        __atomic_store_n(&disguised, whole->calls.read, __ATOMIC_RELAXED);
        __atomic_store_n(&functions, whole->functions, __ATOMIC_RELEASE);
        fclose(sample);
    }
    struct cookie_stream *whole = (struct cookie_stream *)(void *)stream;
    return whole->functions == functions &&
           whole->calls.read == __atomic_load_n(&disguised, __ATOMIC_RELAXED);
}

void azekura_stream_set_mode(FILE *stream, int reads, int writes, int appends)
{
    stream->_flags &= ~(FLAG_NO_READS | FLAG_NO_WRITES | FLAG_APPENDING);
    stream->_flags |= (reads ? 0 : FLAG_NO_READS) | (writes ? 0 : FLAG_NO_WRITES) |
                      (appends ? FLAG_APPENDING : 0);
}

/* The standard streams of the pool, and those of the C library while they are replaced. */
static FILE *ours[3];
static FILE *hosts[3];

static FILE **variable(int fd)
{
    return fd == 0 ? &stdin : fd == 1 ? &stdout : &stderr;
}

FILE *azekura_standard_current(int fd)
{
    return *variable(fd);
}

static size_t pending(const FILE *stream)
{
    return stream->_IO_write_ptr > stream->_IO_write_base
               ? (size_t)(stream->_IO_write_ptr - stream->_IO_write_base)
               : 0;
}

/* What has been printed and not yet written goes to the new place, and so does the buffering. */
static void pass_on(FILE *from, FILE *to)
{
    flockfile(from);
    const int buffering = from->_flags & (FLAG_UNBUFFERED | FLAG_LINE_BUFFERED);
    to->_flags = (to->_flags & ~FLAG_LINE_BUFFERED) | (buffering & FLAG_LINE_BUFFERED);
    if ((buffering ^ to->_flags) & FLAG_UNBUFFERED)
        setvbuf(to, NULL, buffering & FLAG_UNBUFFERED ? _IONBF : _IOFBF, BUFFER_BYTES);
    size_t bytes = pending(from);
    char *text = bytes > 0 ? malloc(bytes) : NULL;
    if (text != NULL) {
        memcpy(text, from->_IO_write_base, bytes);
        __fpurge(from);
        fwrite(text, 1, bytes, to);
        free(text);
    }
    funlockfile(from);
}

void azekura_standard_flush(int fd)
{
    FILE *now = *variable(fd);
    if (now != NULL && now == ours[fd] && pending(now) > PENDING_BYTES_MAX)
        fflush(now);
}

void azekura_standard_ours(int fd)
{
    FILE **place = variable(fd);
    if (*place == NULL || *place == ours[fd] || fileno_unlocked(*place) != fd)
        return;
    if (ours[fd] == NULL)
        ours[fd] = azekura_stream_new(fd, fd == 0 ? "r" : "w");
    if (ours[fd] == NULL)
        return;
    hosts[fd] = *place;
    if (fd != 0)
        pass_on(*place, ours[fd]);
    *place = ours[fd];
}

void azekura_standard_hosts(int fd)
{
    FILE **place = variable(fd);
    if (ours[fd] == NULL || *place != ours[fd])
        return;
    *place = hosts[fd];
    if (fd != 0)
        pass_on(ours[fd], hosts[fd]);
}

/* A standard stream of the pool is about to be closed for good. */
int azekura_standard_forget(FILE *stream)
{
    for (int fd = 0; fd < 3; fd++) {
        if (stream == NULL || ours[fd] != stream)
            continue;
        FILE **place = variable(fd);
        if (*place == stream)
            *place = hosts[fd];
        ours[fd] = NULL;
        return 1;
    }
    return 0;
}
