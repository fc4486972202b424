/* The hash tables: what a table holds, when a record goes, and with which hash it is found. */
#include <string.h>

#include <gurt/common.h>
#include <gurt/hash.h>

#include "check.h"

struct record {
	int references;
	d_list_t link;
	char name[32];
};

static int freed;

static struct record *
record_of(d_list_t *link)
{
	return container_of(link, struct record, link);
}

static bool
key_cmp(struct d_hash_table *table, d_list_t *link, const void *key, unsigned int bytes)
{
	(void)table;
	struct record *record = record_of(link);
	return strlen(record->name) == bytes && memcmp(record->name, key, bytes) == 0;
}

static uint32_t
rec_hash(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	return d_hash_string_u32(record_of(link)->name, strlen(record_of(link)->name));
}

static bool
decref_always_last(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	(void)link;
	return true;
}

static void
addref(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	record_of(link)->references++;
}

static bool
decref(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	return --record_of(link)->references == 0;
}

static void
rec_free(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	freed++;
	free(record_of(link));
}

static struct record *
make(const char *name)
{
	struct record *record = calloc(1, sizeof(*record));
	CHECK(record != NULL);
	strcpy(record->name, name);
	return record;
}

static void
insert(struct d_hash_table *table, const char *name, int wanted)
{
	struct record *record = make(name);
	CHECK_RC(d_hash_rec_insert(table, record->name, strlen(name), &record->link, true), wanted);
	if (wanted != 0)
		free(record);
}

static int
count_one(d_list_t *link, void *argument)
{
	(void)link;
	++*(int *)argument;
	return 0;
}

static int
count(struct d_hash_table *table)
{
	int records = 0;
	CHECK_RC(d_hash_table_traverse(table, count_one, &records), 0);
	return records;
}

/* A cache of open things, without reference counts: emptied from its front, record by record. */
static void
ephemeral(void)
{
	d_hash_table_ops_t ops = {
		.hop_key_cmp = key_cmp,
		.hop_rec_decref = decref_always_last,
		.hop_rec_free = rec_free,
		.hop_rec_hash = rec_hash,
	};
	uint32_t feats = D_HASH_FT_EPHEMERAL | D_HASH_FT_NOLOCK | D_HASH_FT_LRU;
	struct d_hash_table *table = NULL;
	char name[32];

	freed = 0;
	CHECK_RC(d_hash_table_create(feats, 4, NULL, &ops, &table), 0);
	CHECK(d_hash_rec_first(table) == NULL);
	for (int number = 0; number < 100; number++) {
		snprintf(name, sizeof(name), "/dir/%d", number);
		insert(table, name, 0);
	}
	insert(table, "/dir/7", -DER_EXIST);
	for (int number = 0; number < 100; number++) {
		snprintf(name, sizeof(name), "/dir/%d", number);
		d_list_t *link = d_hash_rec_find(table, name, strlen(name));
		CHECK(link != NULL && strcmp(record_of(link)->name, name) == 0);
	}
	CHECK(d_hash_rec_find(table, "/dir", 4) == NULL);
	CHECK(count(table) == 100);
	CHECK_RC(d_hash_table_destroy(table, false), -DER_BUSY);
	for (int left = 100; left > 0; left--) {
		d_list_t *link = d_hash_rec_first(table);
		CHECK(link != NULL);
		d_hash_rec_decref(table, link);
		CHECK(freed == 101 - left);
	}
	CHECK(d_hash_rec_first(table) == NULL);
	CHECK_RC(d_hash_table_destroy(table, false), 0);
}

/* A table that holds a reference of its own to each record, and locks itself. */
static void
counted(void)
{
	d_hash_table_ops_t ops = {
		.hop_key_cmp = key_cmp,
		.hop_rec_addref = addref,
		.hop_rec_decref = decref,
		.hop_rec_free = rec_free,
	};
	struct d_hash_table *table = NULL;

	freed = 0;
	CHECK_RC(d_hash_table_create(0, 0, NULL, &ops, &table), 0);
	insert(table, "one", 0);
	insert(table, "two", 0);
	insert(table, "three", 0);
	d_list_t *link = d_hash_rec_find(table, "two", 3);
	CHECK(link != NULL && record_of(link)->references == 2);
	CHECK(d_hash_rec_delete(table, "two", 3));
	CHECK(!d_hash_rec_delete(table, "two", 3));
	CHECK(d_hash_rec_find(table, "two", 3) == NULL);
	CHECK(freed == 0 && !d_hash_rec_delete_at(table, link));
	d_hash_rec_decref(table, link);
	CHECK(freed == 1);
	link = d_hash_rec_find(table, "one", 3);
	d_hash_rec_addref(table, link);
	CHECK(record_of(link)->references == 3);
	d_hash_rec_decref(table, link);
	d_hash_rec_decref(table, link);
	CHECK(freed == 1 && count(table) == 2);
	CHECK(d_hash_rec_delete_at(table, link));
	CHECK(freed == 2);
	CHECK_RC(d_hash_table_destroy(table, true), 0);
	CHECK(freed == 3);
}

int
main(void)
{
	d_hash_table_ops_t none = {.hop_rec_free = rec_free};
	struct d_hash_table *table = NULL;

	CHECK(d_hash_string_u32("", 0) == 5381);
	CHECK(d_hash_string_u32("abc", 3) == 193485963U);
	CHECK(d_hash_string_u32("abcd", 3) == 193485963U);
	CHECK(d_hash_murmur64((const unsigned char *)"key", 3, 1) !=
	      d_hash_murmur64((const unsigned char *)"key", 3, 2));
	CHECK_RC(d_hash_table_create(0, 4, NULL, &none, &table), -DER_INVAL);
	CHECK_RC(d_hash_table_destroy(NULL, false), -DER_INVAL);
	ephemeral();
	counted();
	return 0;
}
