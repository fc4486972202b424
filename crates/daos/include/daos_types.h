/*
 * Types of pools, containers, objects and events.
 */
#ifndef AZEKURA_DAOS_TYPES_H
#define AZEKURA_DAOS_TYPES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <daos_obj_class.h>
#include <gurt/types.h>

#ifdef __has_include
#if __has_include(<uuid/uuid.h>)
#include <uuid/uuid.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Which functions there are, and how they are called. */
#define DAOS_API_VERSION_MAJOR 2
#define DAOS_API_VERSION_MINOR 0
#define DAOS_API_VERSION_FIX 0

/* Bytes, and offsets in bytes. */
typedef uint64_t daos_size_t;
typedef uint64_t daos_off_t;

/* A point in time; there is none but now, which is 0 or DAOS_EPOCH_MAX. */
typedef uint64_t daos_epoch_t;
typedef struct {
	daos_epoch_t epr_lo;
	daos_epoch_t epr_hi;
} daos_epoch_range_t;
#define DAOS_EPOCH_MAX (~0ULL)

/* A key of an object: bytes of any value. */
typedef d_iov_t daos_key_t;

static inline bool
daos_key_is_null(daos_key_t key)
{
	return key.iov_buf == NULL || key.iov_buf_len == 0;
}

/* Sixteen bytes; the same type as in <uuid/uuid.h>, whose functions programs expect to come along. */
typedef unsigned char uuid_t[16];

/* A pool connection, an open container or object, an event queue. Good in the process that got it, and in all its threads. */
typedef struct {
	uint64_t cookie;
} daos_handle_t;

#define DAOS_HDL_INVAL ((daos_handle_t){0})
/* No transaction; there are no others. */
#define DAOS_TX_NONE DAOS_HDL_INVAL

static inline bool
daos_handle_is_inval(daos_handle_t hdl)
{
	return hdl.cookie == 0;
}

static inline bool
daos_handle_is_valid(daos_handle_t hdl)
{
	return hdl.cookie != 0;
}

/* An object id. */
typedef struct {
	uint64_t lo;
	uint64_t hi;
} daos_obj_id_t;

/* An event, as daos_event_init() makes it; see <daos_event.h>. */
typedef struct daos_event {
	/* How the call ended, once the event has completed. */
	int ev_error;
	struct {
		uint64_t space[20];
	} ev_private;
	uint64_t ev_debug;
} daos_event_t;

enum {
	DAOS_MEDIA_SCM = 0,
	DAOS_MEDIA_NVME,
	DAOS_MEDIA_MAX,
};

/* Sizes in bytes, per kind of storage; everything stands under DAOS_MEDIA_NVME. */
struct daos_space {
	uint64_t s_total[DAOS_MEDIA_MAX];
	uint64_t s_free[DAOS_MEDIA_MAX];
};

struct daos_pool_space {
	struct daos_space ps_space;
	uint64_t ps_free_min[DAOS_MEDIA_MAX];
	uint64_t ps_free_max[DAOS_MEDIA_MAX];
	uint64_t ps_free_mean[DAOS_MEDIA_MAX];
	uint32_t ps_ntargets;
	uint32_t ps_padding;
};

/* What daos_pool_query() is to find out. */
enum daos_pool_info_bit {
	DPI_SPACE = 1 << 0,
	DPI_REBUILD_STATUS = 1 << 1,
	DPI_ENGINES_ENABLED = 1 << 2,
	DPI_ALL = -1,
};

typedef struct {
	uuid_t pi_uuid;
	uint32_t pi_ntargets;
	uint32_t pi_nnodes;
	uint32_t pi_ndisabled;
	uint32_t pi_map_ver;
	uint32_t pi_leader;
	/* In: enum daos_pool_info_bit. */
	uint64_t pi_bits;
	struct daos_pool_space pi_space;
} daos_pool_info_t;

typedef struct {
	uuid_t ci_uuid;
	uint64_t ci_lsnapshot;
	uint32_t ci_nhandles;
	uint32_t ci_nsnapshots;
} daos_cont_info_t;

/* A range of records: from which on, and how many. */
typedef struct {
	daos_off_t rg_idx;
	daos_size_t rg_len;
} daos_range_t;

/* Where a listing has come to: all zeros at the start. */
typedef struct {
	uint16_t da_type;
	uint16_t da_shard;
	uint32_t da_flags;
	uint64_t da_sub_anchors;
	uint8_t da_buf[104];
} daos_anchor_t;

enum {
	DAOS_ANCHOR_TYPE_ZERO = 0,
	DAOS_ANCHOR_TYPE_HKEY = 1,
	DAOS_ANCHOR_TYPE_EOF = 3,
};

static inline void
daos_anchor_set_zero(daos_anchor_t *anchor)
{
	memset(anchor, 0, sizeof(*anchor));
}

static inline bool
daos_anchor_is_zero(const daos_anchor_t *anchor)
{
	return anchor->da_type == DAOS_ANCHOR_TYPE_ZERO;
}

static inline bool
daos_anchor_is_eof(const daos_anchor_t *anchor)
{
	return anchor->da_type == DAOS_ANCHOR_TYPE_EOF;
}

/* For listings: no more than daos_anchor_set_zero(). */
static inline int
daos_anchor_init(daos_anchor_t *anchor, unsigned int opts)
{
	(void)opts;
	daos_anchor_set_zero(anchor);
	return 0;
}

static inline void
daos_anchor_fini(daos_anchor_t *anchor)
{
	(void)anchor;
}

#ifdef __cplusplus
}
#endif

#endif
