/*
 * Hash tables of records that carry their own link. The table owns its buckets, the caller the
 * records; what a record is, and when it is free to go, the callbacks say.
 */
#ifndef AZEKURA_GURT_HASH_H
#define AZEKURA_GURT_HASH_H

#include <gurt/common.h>
#include <gurt/list.h>

#ifdef __cplusplus
extern "C" {
#endif

struct d_hash_table;

/* The callbacks. All but hop_key_cmp may be NULL. */
typedef struct {
	/* Whether the record has this key. */
	bool (*hop_key_cmp)(struct d_hash_table *htable, d_list_t *link, const void *key,
			    unsigned int ksize);
	/* Gives a new record a key of its own; not called by this library. */
	void (*hop_key_init)(struct d_hash_table *htable, d_list_t *link, void *arg);
	/* Hash of a key; d_hash_string_u32() where it is NULL. */
	uint32_t (*hop_key_hash)(struct d_hash_table *htable, const void *key, unsigned int ksize);
	/* Hash of a record's key. Needed to take out a record of a table with LRU or locks. */
	uint32_t (*hop_rec_hash)(struct d_hash_table *htable, d_list_t *link);
	/* Counts one more user of the record. */
	void (*hop_rec_addref)(struct d_hash_table *htable, d_list_t *link);
	/* Counts one user less; true if that was the last, so that the record may go. */
	bool (*hop_rec_decref)(struct d_hash_table *htable, d_list_t *link);
	/* Frees a record that is in no table any more. */
	void (*hop_rec_free)(struct d_hash_table *htable, d_list_t *link);
} d_hash_table_ops_t;

/* Features of a table. Without any, it holds a reference to each record and locks itself. */
enum d_hash_feats {
	/* The caller locks. */
	D_HASH_FT_NOLOCK = (1 << 0),
	/* Which kind of lock; all mean the one that this library has. */
	D_HASH_FT_MUTEX = (1 << 1),
	D_HASH_FT_RWLOCK = (1 << 2),
	D_HASH_FT_GLOCK = (1 << 3),
	/* The table holds no reference: a record leaves it with its last user. */
	D_HASH_FT_EPHEMERAL = (1 << 4),
	/* A record that was found moves to the front of its bucket. */
	D_HASH_FT_LRU = (1 << 5),
};

/* Visits a record; non-zero ends the walk. */
typedef int (*d_hash_traverse_cb_t)(d_list_t *link, void *arg);

/*
 * Makes a table of 2^bits buckets (at most 2^24). `priv` is the caller's and may be NULL.
 * 0, -DER_INVAL, -DER_NOMEM.
 */
int d_hash_table_create(uint32_t feats, uint32_t bits, void *priv, d_hash_table_ops_t *hops,
			struct d_hash_table **htable_pp);

/*
 * Frees a table. With records in it: -DER_BUSY, or with `force` each of them is taken out, loses
 * the table's reference, and is freed if that was the last.
 */
int d_hash_table_destroy(struct d_hash_table *htable, bool force);

/* Calls `cb` for each record, which must not change the table. 0, or what `cb` ended it with. */
int d_hash_table_traverse(struct d_hash_table *htable, d_hash_traverse_cb_t cb, void *arg);

/* The record with this key, with a reference for the caller; NULL if there is none. */
d_list_t *d_hash_rec_find(struct d_hash_table *htable, const void *key, unsigned int ksize);

/* Puts a record in. With `exclusive`, -DER_EXIST if the key is there. 0, -DER_INVAL. */
int d_hash_rec_insert(struct d_hash_table *htable, const void *key, unsigned int ksize,
		      d_list_t *link, bool exclusive);

/* Takes the record with this key out; true if there was one. It is freed with its last reference. */
bool d_hash_rec_delete(struct d_hash_table *htable, const void *key, unsigned int ksize);

/* Takes this record out; true if it was in. */
bool d_hash_rec_delete_at(struct d_hash_table *htable, d_list_t *link);

/* One more user of the record. */
void d_hash_rec_addref(struct d_hash_table *htable, d_list_t *link);

/* One user less. After the last the record is freed; an ephemeral table lets go of it first. */
void d_hash_rec_decref(struct d_hash_table *htable, d_list_t *link);

/* Any record, without a reference; NULL if the table is empty. */
d_list_t *d_hash_rec_first(struct d_hash_table *htable);

#ifdef __cplusplus
}
#endif

#endif
