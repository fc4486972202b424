/*
 * Buffers, scatter-gather lists and plain integer types of the DAOS interface, as Azekura serves it.
 *
 * Lengths are bytes. No function of this interface keeps a buffer after its call is over: when it returns,
 * or with an event when that has completed.
 */
#ifndef AZEKURA_GURT_TYPES_H
#define AZEKURA_GURT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A piece of memory: where it is, how long it is, and how much of it holds data. */
typedef struct {
	void *iov_buf;
	size_t iov_buf_len;
	size_t iov_len;
} d_iov_t;

/* Several pieces that are one range of a file. */
typedef struct {
	uint32_t sg_nr;
	uint32_t sg_nr_out;
	d_iov_t *sg_iovs;
} d_sg_list_t;

/* Makes a piece of memory of which all bytes count. */
static inline void
d_iov_set(d_iov_t *iov, void *buf, size_t size)
{
	iov->iov_buf = buf;
	iov->iov_buf_len = size;
	iov->iov_len = size;
}

#ifdef __cplusplus
}
#endif

#endif
