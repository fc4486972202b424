/*
 * The part of the DAOS interface that Azekura serves: pools here, the rest in what this includes, and
 * files in <daos_fs.h> and <daos_fs_sys.h>.
 *
 * Unless said otherwise, functions give 0 or a negative number of <daos_errno.h>. `ev` is NULL, or an
 * event, which these calls complete before they return. All functions may be called from several threads.
 */
#ifndef AZEKURA_DAOS_H
#define AZEKURA_DAOS_H

#include <daos_api.h>
#include <daos_array.h>
#include <daos_cont.h>
#include <daos_errno.h>
#include <daos_event.h>
#include <daos_kv.h>
#include <daos_obj.h>
#include <daos_obj_class.h>
#include <daos_prop.h>
#include <daos_types.h>
#include <gurt/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Access to a pool. */
#define DAOS_PC_RO (1U << 0)
#define DAOS_PC_RW (1U << 1)
#define DAOS_PC_EX (1U << 2)

/* To be called before the other functions; counted, each with its daos_fini(). */
int daos_init(void);
int daos_fini(void);
/* In a child of a fork: the parent's queues are gone, handles stay. No call of the parent's may be under way
 * at the fork. -DER_UNINIT. */
int daos_reinit(void);

/*
 * Connects to a pool. `pool` is the name or id of a pool that is known on this machine, the path of a
 * pool file, or a URL azekura://HOST:PORT/NAME?secret_file=PATH. `sys` is not read. `info` may be
 * NULL. -DER_NONEXIST, -DER_NO_PERM, -DER_UNREACH.
 */
int daos_pool_connect(const char *pool, const char *sys, unsigned int flags, daos_handle_t *poh,
		      daos_pool_info_t *info, daos_event_t *ev);
int daos_pool_disconnect(daos_handle_t poh, daos_event_t *ev);

/* What a pool is like; its space if DPI_SPACE stands in info->pi_bits. `ranks`, `prop`: not read. */
int daos_pool_query(daos_handle_t poh, void *ranks, daos_pool_info_t *info, daos_prop_t *prop,
		    daos_event_t *ev);

/* A container of a pool: the id and the name that open it. */
struct daos_pool_cont_info {
	uuid_t pci_uuid;
	char pci_label[DAOS_PROP_LABEL_MAX_LEN + 1];
};
/* Lists all containers. *ncont is the room that there is, and becomes their number; with `cbuf` NULL only
 * that. -DER_TRUNC without room for all. */
int daos_pool_list_cont(daos_handle_t poh, daos_size_t *ncont, struct daos_pool_cont_info *cbuf,
			daos_event_t *ev);

typedef enum {
	DAOS_TS_UNKNOWN,
	DAOS_TS_DOWN_OUT,
	DAOS_TS_DOWN,
	DAOS_TS_UP,
	DAOS_TS_UP_IN,
	DAOS_TS_NEW,
	DAOS_TS_DRAIN,
} daos_target_state_t;

/* Not told. */
typedef struct {
	int foo;
} daos_target_perf_t;

typedef struct {
	uint32_t ta_padding;
	/* DAOS_TS_UP_IN. */
	daos_target_state_t ta_state;
	daos_target_perf_t ta_perf;
	/* Of the device, which other targets may share. */
	struct daos_space ta_space;
} daos_target_info_t;
/* A target, by its place among those of an engine, and the engine's place in the pool. -DER_NONEXIST,
 * -DER_UNREACH. */
int daos_pool_query_target(daos_handle_t poh, uint32_t tgt, uint32_t rank, daos_target_info_t *info,
			   daos_event_t *ev);

/*
 * A handle as bytes that another process, also on another host, makes a handle of. With
 * glob->iov_buf NULL only glob->iov_buf_len is set, to the bytes it takes; a buffer that is too short
 * gives -DER_TRUNC. The bytes of a pool hold its secret: only one's own processes may see them.
 */
int daos_pool_local2global(daos_handle_t poh, d_iov_t *glob);
int daos_pool_global2local(d_iov_t glob, daos_handle_t *poh);

#ifdef __cplusplus
}
#endif

#endif
