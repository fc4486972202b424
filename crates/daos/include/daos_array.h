/*
 * Arrays: one sequence of cells of one size, in chunks over the targets of its class. Errors, events and
 * `th` are as in <daos_obj.h>; with an event, daos_array_read() and _write() go on in the background.
 */
#ifndef AZEKURA_DAOS_ARRAY_H
#define AZEKURA_DAOS_ARRAY_H

#include <daos_obj.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ranges of cells. Of a read, arr_nr_read becomes the number of cells of these ranges that lie before
 * the end, and arr_nr_short_read the number of those that do not. */
typedef struct {
	daos_size_t arr_nr;
	daos_range_t *arr_rgs;
	daos_size_t arr_nr_short_read;
	daos_size_t arr_nr_read;
} daos_array_iod_t;

/* Size in cells. */
typedef struct {
	daos_size_t st_size;
	daos_epoch_t st_max_epoch;
} daos_array_stbuf_t;

/* As daos_obj_generate_oid(), for an array that keeps its cell and chunk size (`add_attr`) or not. */
static inline int
daos_array_generate_oid(daos_handle_t coh, daos_obj_id_t *oid, bool add_attr, daos_oclass_id_t cid,
			daos_oclass_hints_t hints, uint32_t args)
{
	return daos_obj_generate_oid(coh, oid, add_attr ? DAOS_OT_ARRAY : DAOS_OT_ARRAY_ATTR, cid,
				     hints, args);
}

/* Makes an array with cells of so many bytes and chunks of so many cells, which are kept with it.
 * -DER_EXIST. */
int daos_array_create(daos_handle_t coh, daos_obj_id_t oid, daos_handle_t th, daos_size_t cell_size,
		      daos_size_t chunk_size, daos_handle_t *oh, daos_event_t *ev);
/* Opens one that was made so, and tells both sizes. -DER_NONEXIST. */
int daos_array_open(daos_handle_t coh, daos_obj_id_t oid, daos_handle_t th, unsigned int mode,
		    daos_size_t *cell_size, daos_size_t *chunk_size, daos_handle_t *oh,
		    daos_event_t *ev);
/* Opens one of which nothing is kept: everybody gives the same sizes. */
int daos_array_open_with_attr(daos_handle_t coh, daos_obj_id_t oid, daos_handle_t th,
			      unsigned int mode, daos_size_t cell_size, daos_size_t chunk_size,
			      daos_handle_t *oh, daos_event_t *ev);
int daos_array_close(daos_handle_t oh, daos_event_t *ev);
/* As daos_cont_local2global(), of an open array; `mode` of 0 opens it as it was. -DER_INVAL for an array of
 * another container, -DER_STALE for a file that is gone. */
int daos_array_local2global(daos_handle_t oh, d_iov_t *glob);
int daos_array_global2local(daos_handle_t coh, d_iov_t glob, unsigned int mode, daos_handle_t *oh);

/* Reads into, and writes from, memory that has as many bytes as the ranges; else -DER_INVAL. What nobody
 * has written reads as zeros. */
int daos_array_read(daos_handle_t oh, daos_handle_t th, daos_array_iod_t *iod, d_sg_list_t *sgl,
		    daos_event_t *ev);
int daos_array_write(daos_handle_t oh, daos_handle_t th, daos_array_iod_t *iod, d_sg_list_t *sgl,
		     daos_event_t *ev);

/* Makes holes of these ranges, which read as zeros; the length stays as it is. With an event it goes on in
 * the background. */
int daos_array_punch(daos_handle_t oh, daos_handle_t th, daos_array_iod_t *iod, daos_event_t *ev);

/* In cells. */
int daos_array_get_size(daos_handle_t oh, daos_handle_t th, daos_size_t *size, daos_event_t *ev);
int daos_array_set_size(daos_handle_t oh, daos_handle_t th, daos_size_t size, daos_event_t *ev);
/* st_max_epoch becomes 0. */
int daos_array_stat(daos_handle_t oh, daos_handle_t th, daos_array_stbuf_t *stbuf, daos_event_t *ev);
int daos_array_get_attr(daos_handle_t oh, daos_size_t *chunk_size, daos_size_t *cell_size);
/* Removes all cells, and the sizes that are kept; the handle stays. -DER_NO_PERM for that of a file. */
int daos_array_destroy(daos_handle_t oh, daos_handle_t th, daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
