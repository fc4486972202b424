/*
 * Containers. Errors and events are as in <daos.h>.
 */
#ifndef AZEKURA_DAOS_CONT_H
#define AZEKURA_DAOS_CONT_H

#include <daos_errno.h>
#include <daos_event.h>
#include <daos_prop.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Access to a container. */
#define DAOS_COO_RO (1U << 0)
#define DAOS_COO_RW (1U << 1)
#define DAOS_COO_EX (1U << 2)

/*
 * Opens the container of this name. `info` may be NULL. -DER_NONEXIST if the pool has none.
 */
int daos_cont_open(daos_handle_t poh, const char *cont, unsigned int flags, daos_handle_t *coh,
		   daos_cont_info_t *info, daos_event_t *ev);
int daos_cont_close(daos_handle_t coh, daos_event_t *ev);

/* Makes a container. `uuid` may be NULL, `prop` is not read. -DER_EXIST. */
int daos_cont_create_with_label(daos_handle_t poh, const char *label, daos_prop_t *prop,
				uuid_t *uuid, daos_event_t *ev);
/* Makes one with a name of its own that nobody has given; *uuid, as text, opens it. */
int daos_cont_create(daos_handle_t poh, uuid_t *uuid, daos_prop_t *prop, daos_event_t *ev);

/* Destroys a container with all that is in it. `force` makes no difference. */
int daos_cont_destroy(daos_handle_t poh, const char *cont, int force, daos_event_t *ev);

/* As for pools. The bytes hold no secret. */
int daos_cont_local2global(daos_handle_t coh, d_iov_t *glob);
int daos_cont_global2local(daos_handle_t poh, d_iov_t glob, daos_handle_t *coh);

/* What a container is like; `info` and `prop`, whose entries are asked for by their types, may be NULL. */
int daos_cont_query(daos_handle_t coh, daos_cont_info_t *info, daos_prop_t *prop, daos_event_t *ev);

/* A list without entries: containers have no access control lists. To be freed by daos_prop_free(). */
int daos_cont_get_acl(daos_handle_t coh, daos_prop_t **acl_prop, daos_event_t *ev);

/* Longest name of an attribute, in bytes. */
#define DAOS_ATTR_NAME_MAX 511

/*
 * Attributes: values under names that users give. Names of all, each with its zero byte, as far as
 * they fit into *size bytes; *size becomes what all take. `buffer` may be NULL with *size of 0.
 */
int daos_cont_list_attr(daos_handle_t coh, char *buffer, size_t *size, daos_event_t *ev);
/* Values, as far as they fit; sizes[i] becomes their length. `buffers`, or one of them, may be NULL.
 * -DER_NONEXIST. */
int daos_cont_get_attr(daos_handle_t coh, int n, const char *const names[], void *const buffers[],
		       size_t sizes[], daos_event_t *ev);
/* Values of at most 128 KiB. All are set, or none. -DER_OVERFLOW. */
int daos_cont_set_attr(daos_handle_t coh, int n, const char *const names[],
		       const void *const values[], const size_t sizes[], daos_event_t *ev);
int daos_cont_del_attr(daos_handle_t coh, int n, const char *const names[], daos_event_t *ev);

/* Numbers that nobody else gets from this container: num_oids of them from *oid on. */
int daos_cont_alloc_oids(daos_handle_t coh, daos_size_t num_oids, uint64_t *oid, daos_event_t *ev);

/* There are no snapshots: -DER_NOSYS. -DER_INVAL without a place for the epoch. */
int daos_cont_create_snap(daos_handle_t coh, daos_epoch_t *epoch, char *name, daos_event_t *ev);
enum daos_snapshot_opts {
	DAOS_SNAP_OPT_CR = 1 << 0,
	DAOS_SNAP_OPT_OIT = 1 << 1,
};
int daos_cont_create_snap_opt(daos_handle_t coh, daos_epoch_t *epoch, char *name,
			      enum daos_snapshot_opts opts, daos_event_t *ev);
int daos_cont_destroy_snap(daos_handle_t coh, daos_epoch_range_t epr, daos_event_t *ev);
int daos_cont_rollback(daos_handle_t coh, daos_epoch_t epoch, daos_event_t *ev);
/* So *nr becomes 0, and the listing is at its end. */
int daos_cont_list_snap(daos_handle_t coh, int *nr, daos_epoch_t *epochs, char **names,
			daos_anchor_t *anchor, daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
