/*
 * Key-values: values of at most 128 KiB under keys that are text. Errors, events and `th` are as in
 * <daos_obj.h>; with an event, daos_kv_put(), _get() and _remove() go on in the background.
 */
#ifndef AZEKURA_DAOS_KV_H
#define AZEKURA_DAOS_KV_H

#include <daos_obj.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Conditions: that there is no value, or that there is one. -DER_EXIST, -DER_NONEXIST. */
#define DAOS_COND_KEY_INSERT DAOS_COND_DKEY_INSERT
#define DAOS_COND_KEY_UPDATE DAOS_COND_DKEY_UPDATE
#define DAOS_COND_KEY_GET DAOS_COND_DKEY_FETCH
#define DAOS_COND_KEY_REMOVE DAOS_COND_PUNCH

int daos_kv_open(daos_handle_t coh, daos_obj_id_t oid, unsigned int mode, daos_handle_t *oh,
		 daos_event_t *ev);
int daos_kv_close(daos_handle_t oh, daos_event_t *ev);
/* Removes all keys; the handle stays. */
int daos_kv_destroy(daos_handle_t oh, daos_handle_t th, daos_event_t *ev);

int daos_kv_put(daos_handle_t oh, daos_handle_t th, uint64_t flags, const char *key,
		daos_size_t size, const void *buf, daos_event_t *ev);
/* *size is the room at `buf`, and becomes the length, 0 if there is no such key; with `buf` NULL only
 * that. -DER_REC2BIG if the room is too small. */
int daos_kv_get(daos_handle_t oh, daos_handle_t th, uint64_t flags, const char *key,
		daos_size_t *size, void *buf, daos_event_t *ev);
int daos_kv_remove(daos_handle_t oh, daos_handle_t th, uint64_t flags, const char *key,
		   daos_event_t *ev);
/* As daos_obj_list_dkey(). */
int daos_kv_list(daos_handle_t oh, daos_handle_t th, uint32_t *nr, daos_key_desc_t *kds,
		 d_sg_list_t *sgl, daos_anchor_t *anchor, daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
