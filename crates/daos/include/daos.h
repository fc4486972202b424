/*
 * The part of the DAOS interface that Azekura serves: pools and containers. Files stand in
 * <daos_fs.h>.
 *
 * Unless said otherwise, functions give 0 or a negative number of <daos_errno.h>. `ev` is NULL, or an
 * event that is done when the call returns. All functions may be called from several threads.
 */
#ifndef AZEKURA_DAOS_H
#define AZEKURA_DAOS_H

#include <daos_errno.h>
#include <daos_obj_class.h>
#include <daos_types.h>
#include <gurt/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Access to a pool. */
#define DAOS_PC_RO (1U << 0)
#define DAOS_PC_RW (1U << 1)
#define DAOS_PC_EX (1U << 2)

/* Access to a container. */
#define DAOS_COO_RO (1U << 0)
#define DAOS_COO_RW (1U << 1)
#define DAOS_COO_EX (1U << 2)

/* To be called before the other functions; counted, each with its daos_fini(). */
int daos_init(void);
int daos_fini(void);

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

/*
 * A handle as bytes that another process, also on another host, makes a handle of. With
 * glob->iov_buf NULL only glob->iov_buf_len is set, to the bytes it takes; a buffer that is too short
 * gives -DER_TRUNC. The bytes of a pool hold its secret: only one's own processes may see them.
 */
int daos_pool_local2global(daos_handle_t poh, d_iov_t *glob);
int daos_pool_global2local(d_iov_t glob, daos_handle_t *poh);

/*
 * Opens the container of this name. `info` may be NULL. -DER_NONEXIST if the pool has none.
 */
int daos_cont_open(daos_handle_t poh, const char *cont, unsigned int flags, daos_handle_t *coh,
		   daos_cont_info_t *info, daos_event_t *ev);
int daos_cont_close(daos_handle_t coh, daos_event_t *ev);

/* Makes a container. `uuid` may be NULL, `prop` is not read. -DER_EXIST. */
int daos_cont_create_with_label(daos_handle_t poh, const char *label, daos_prop_t *prop,
				uuid_t *uuid, daos_event_t *ev);

/* Destroys a container with all that is in it. `force` makes no difference. */
int daos_cont_destroy(daos_handle_t poh, const char *cont, int force, daos_event_t *ev);

/* As for pools. The bytes hold no secret. */
int daos_cont_local2global(daos_handle_t coh, d_iov_t *glob);
int daos_cont_global2local(daos_handle_t poh, d_iov_t glob, daos_handle_t *coh);

/* Events without a queue: `eqh` is DAOS_HDL_INVAL, `parent` NULL. */
int daos_event_init(daos_event_t *ev, daos_handle_t eqh, daos_event_t *parent);
int daos_event_fini(daos_event_t *ev);
/* Sets *flag: every call is done when it returns. */
int daos_event_test(daos_event_t *ev, int64_t timeout, bool *flag);

#ifdef __cplusplus
}
#endif

#endif
