/* What the recording mode has to know of a stream of the C library. Owns what reads its fields, which are
 * part of the C library's binary interface. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdio.h>

/* Bits of `_flags`, as above. */
#define FLAG_UNBUFFERED 0x0002
#define FLAG_LINE_BUFFERED 0x0200
#define FLAG_WRITING 0x0800

/* The same as `Look` in look.rs. */
struct look {
    int fd;
    int is_writing;
    size_t unread;
    size_t filled;
    size_t pending;
    size_t room;
    size_t buffer;
};

void azekura_stream_look(const FILE *stream, struct look *into);

static size_t between(const char *start, const char *end)
{
    return start != NULL && end > start ? (size_t)(end - start) : 0;
}

void azekura_stream_look(const FILE *stream, struct look *into)
{
    int is_writing = (stream->_flags & FLAG_WRITING) != 0;
    int goes_at_once = (stream->_flags & (FLAG_UNBUFFERED | FLAG_LINE_BUFFERED)) != 0;
    into->fd = stream->_fileno;
    into->is_writing = is_writing;
    into->unread = is_writing ? 0 : between(stream->_IO_read_ptr, stream->_IO_read_end);
    into->filled = is_writing ? 0 : between(stream->_IO_read_base, stream->_IO_read_end);
    into->pending = is_writing ? between(stream->_IO_write_base, stream->_IO_write_ptr) : 0;
    into->room = is_writing && !goes_at_once ? between(stream->_IO_write_ptr, stream->_IO_buf_end) : 0;
    into->buffer = between(stream->_IO_buf_base, stream->_IO_buf_end);
}
