/*
 * What every part of the interface builds on: lists, buffers, error numbers, print formats.
 */
#ifndef AZEKURA_GURT_COMMON_H
#define AZEKURA_GURT_COMMON_H

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <daos_errno.h>
#include <gurt/list.h>
#include <gurt/types.h>

#ifndef container_of
#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#endif

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(x) (sizeof(x) / sizeof((x)[0]))
#endif

/* printf formats: DF_RC with DP_RC(rc) prints the name and number of an error. */
#define DF_U64 "%" PRIu64
#define DF_X64 "%" PRIx64
#define DF_RC "%s(%d)"
#define DP_RC(rc) d_errstr(rc), (rc)

#ifdef __cplusplus
extern "C" {
#endif

/* MurmurHash64A of `len` bytes. */
uint64_t d_hash_murmur64(const unsigned char *key, unsigned int len, unsigned int seed);

/* The string hash of Bernstein, h * 33 + c from 5381, over `len` bytes. */
uint32_t d_hash_string_u32(const char *string, unsigned int len);

#ifdef __cplusplus
}
#endif

#endif
