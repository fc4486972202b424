/* Pools, containers and objects, through every function and with every errno that they promise. */
#include "check.h"

#include <stdint.h>

/* The same numbers stand in src/layout.rs. */
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#if UINTPTR_MAX == UINT64_MAX
SIZE(struct azekura_pool_options, 64);
SIZE(struct azekura_pool_info, 376);
SIZE(struct azekura_space, 64);
SIZE(struct azekura_engine_info, 160);
SIZE(struct azekura_container_options, 64);
SIZE(struct azekura_container_info, 336);
SIZE(struct azekura_oid, 16);
SIZE(struct azekura_object_info, 64);
SIZE(struct azekura_kv_update, 72);
SIZE(struct azekura_stat, 168);
SIZE(struct azekura_statfs, 72);
SIZE(struct azekura_dirent, 280);
SIZE(struct azekura_lock_info, 24);
#endif

static void versions(void)
{
	HOLDS(azekura_version() == AZEKURA_VERSION);
	HOLDS(strcmp(azekura_version_string(), "0.1.0") == 0);
	HOLDS(strcmp(azekura_strerror(-ENOENT), "No such file or directory") == 0);
	HOLDS(strcmp(azekura_strerror(ENOENT), azekura_strerror(-ENOENT)) == 0);
	HOLDS(strcmp(azekura_error_message(), "") == 0);
}

static azekura_pool *pools(const char *name)
{
	struct azekura_pool_options options = AZEKURA_POOL_OPTIONS_INIT;
	struct azekura_engine_info engine;
	struct azekura_pool_info info;
	struct azekura_space space;
	azekura_pool *pool = (azekura_pool *)&options;

	FAILS(azekura_pool_open("nowhere", NULL, &pool), ENOENT, "azekura up --name nowhere");
	HOLDS(pool == NULL);
	FAILS(azekura_pool_open(NULL, NULL, &pool), EFAULT, "'name' is NULL");
	FAILS(azekura_pool_open(name, NULL, NULL), EFAULT, "'pool' is NULL");
	FAILS(azekura_pool_open("\xff", NULL, &pool), EINVAL, "UTF-8");
	FAILS(azekura_pool_open("azekura://", NULL, &pool), EINVAL, "pool URL");
	options.reserved[3] = 1;
	FAILS(azekura_pool_open(name, &options, &pool), EINVAL, "AZEKURA_POOL_OPTIONS_INIT");
	options.reserved[3] = 0;
	options.flags = 1u << 30;
	FAILS(azekura_pool_open(name, &options, &pool), EINVAL, "options");
	options.flags = AZEKURA_POOL_LAZY;
	options.timeout_ms = 20000;
	OK(azekura_pool_open(name, &options, &pool));
	OK(azekura_pool_close(pool));
	OK(azekura_pool_close(NULL));
	OK(azekura_pool_open(name, NULL, &pool));
	OK(azekura_pool_info(pool, &info));
	HOLDS(strcmp(info.name, name) == 0);
	HOLDS(strlen(info.id) == 32 && info.engines == 1 && info.targets == 4);
	OK(azekura_pool_space(pool, &space));
	HOLDS(space.available_bytes > 0 && space.available_bytes <= space.total_bytes);
	OK(azekura_engine_info(pool, 0, &engine));
	HOLDS(engine.targets == 4 && engine.sessions >= 1 && engine.pid > 1);
	FAILS(azekura_engine_info(pool, 1, &engine), EINVAL, "there is no engine 1");
	FAILS(azekura_pool_info(NULL, &info), EINVAL, "the pool handle is NULL");
	FAILS(azekura_pool_info(pool, NULL), EFAULT, "'info' is NULL");
	FAILS(azekura_pool_space(pool, NULL), EFAULT, "'space' is NULL");
	return pool;
}

static azekura_container *containers(azekura_pool *pool)
{
	struct azekura_container_options options = AZEKURA_CONTAINER_OPTIONS_INIT;
	struct azekura_container_info info, found[4];
	azekura_container *container;

	OK(azekura_container_create(pool, "plain", NULL));
	FAILS(azekura_container_create(pool, "plain", NULL), EEXIST, "container 'plain'");
	FAILS(azekura_container_create(pool, "a/b", NULL), EINVAL, "is not a name");
	FAILS(azekura_container_create(pool, "", NULL), EINVAL, "is not a name");
	options.file_class = AZEKURA_S2;
	options.directory_class = AZEKURA_S1;
	options.chunk_bytes = 65536;
	OK(azekura_container_create(pool, "narrow", &options));
	options.file_class = 3;
	FAILS(azekura_container_create(pool, "odd", &options), EINVAL, "no object class 3");
	options.file_class = 0;
	options.chunk_bytes = 17;
	FAILS(azekura_container_create(pool, "odd", &options), EINVAL, "17");
	IS(azekura_container_list(pool, NULL, 0), 3);
	IS(azekura_container_list(pool, found, 2), 3);
	IS(azekura_container_list(pool, found, 4), 3);
	FAILS(azekura_container_list(pool, NULL, 2), EFAULT, "'entries'");
	FAILS(azekura_container_open(pool, "absent", 0, &container), ENOENT, "'absent'");
	HOLDS(container == NULL);
	FAILS(azekura_container_open(pool, "narrow", 64, &container), EINVAL, "flags");
	OK(azekura_container_open(pool, "narrow", 0, &container));
	OK(azekura_container_info(container, &info));
	HOLDS(strcmp(info.name, "narrow") == 0 && info.file_class == AZEKURA_S2);
	HOLDS(info.directory_class == AZEKURA_S1 && info.chunk_bytes == 65536);
	OK(azekura_container_sync(container));
	OK(azekura_container_close(container));
	options.chunk_bytes = 131072;
	OK(azekura_container_change(pool, "narrow", &options));
	OK(azekura_container_open(pool, "narrow", AZEKURA_NO_CACHE, &container));
	OK(azekura_container_info(container, &info));
	HOLDS(info.file_class == AZEKURA_S2 && info.chunk_bytes == 131072);
	OK(azekura_container_close(container));
	OK(azekura_container_destroy(pool, "narrow"));
	FAILS(azekura_container_destroy(pool, "narrow"), ENOENT, "container 'narrow'");
	OK(azekura_container_open(pool, "plain", 0, &container));
	return container;
}

static void ids(azekura_container *container, azekura_container *other)
{
	struct azekura_container_info known;
	struct azekura_object_info info;
	char text[AZEKURA_OID_TEXT_BYTES];
	azekura_object *object;
	azekura_oid oid;

	FAILS(azekura_object_create(container, 5, 0, 0, &object), EINVAL, "no object class 5");
	FAILS(azekura_object_create(container, 0, 5000, 0, &object), EINVAL, "power of two");
	FAILS(azekura_object_create(container, 0, 0, AZEKURA_TAG_MAX + 1, &object), EINVAL, "tag");
	OK(azekura_object_create(container, AZEKURA_S2, 4096, 4711, &object));
	OK(azekura_object_info(object, &info));
	HOLDS(info.object_class == AZEKURA_S2 && info.shards == 2);
	HOLDS(info.chunk_bytes == 4096 && info.tag == 4711);
	OK(azekura_object_close(object));
	OK(azekura_oid_format(info.oid, text, sizeof text));
	FAILS(azekura_oid_format(info.oid, text, 33), ERANGE, "34");
	OK(azekura_oid_parse(text, &oid));
	HOLDS(oid.hi == info.oid.hi && oid.lo == info.oid.lo);
	FAILS(azekura_oid_parse("hello", &oid), EINVAL, "hex digits");
	OK(azekura_object_open(container, info.oid, &object));
	OK(azekura_object_close(object));
	FAILS(azekura_object_open(other, info.oid, &object), EINVAL, "another container");
	OK(azekura_container_info(container, &known));
	FAILS(azekura_object_open(container, known.root, &object), EINVAL, "open files by path");
	oid.lo |= (uint64_t)0xff << 56;
	FAILS(azekura_object_open(container, oid, &object), EINVAL, "object class");
}

static void values(azekura_container *container)
{
	static char big[AZEKURA_VALUE_BYTES_MAX + 1], long_key[AZEKURA_KEY_BYTES_MAX + 1];
	azekura_object *object;
	char room[16];

	memset(big, 'v', sizeof big);
	memset(long_key, 'k', sizeof long_key);
	OK(azekura_object_create(container, AZEKURA_SX, 0, 0, &object));
	FAILS(azekura_kv_get(object, "d", 1, "a", 1, room, 16), ENOENT, "no value");
	OK(azekura_kv_put(object, "d", 1, "a", 1, "one", 3, AZEKURA_MUST_NOT_EXIST));
	FAILS(azekura_kv_put(object, "d", 1, "a", 1, "two", 3, AZEKURA_MUST_NOT_EXIST), EEXIST,
	      "already");
	IS(azekura_kv_get(object, "d", 1, "a", 1, NULL, 0), 3);
	IS(azekura_kv_get(object, "d", 1, "a", 1, room, 3), 3);
	HOLDS(memcmp(room, "one", 3) == 0);
	FAILS(azekura_kv_get(object, "d", 1, "a", 1, room, 2), ERANGE, "3 bytes");
	OK(azekura_kv_put(object, "d", 1, "a", 1, "three", 5, AZEKURA_MUST_EXIST));
	FAILS(azekura_kv_put(object, "d", 1, "b", 1, "x", 1, AZEKURA_MUST_EXIST), ENOENT, "no value");
	FAILS(azekura_kv_put(object, "d", 1, "b", 1, "x", 1, AZEKURA_MUST_EQUAL), EINVAL,
	      "azekura_kv_replace");
	FAILS(azekura_kv_replace(object, "d", 1, "a", 1, "two", 3, "x", 1), ECANCELED, "expected");
	OK(azekura_kv_replace(object, "d", 1, "a", 1, "three", 5, "four", 4));
	IS(azekura_kv_get(object, "d", 1, "a", 1, room, 16), 4);
	/* Values of no bytes are values, and bytes are only bytes. */
	OK(azekura_kv_put(object, "d\0e", 3, "\0", 1, NULL, 0, AZEKURA_ALWAYS));
	IS(azekura_kv_get(object, "d\0e", 3, "\0", 1, room, 16), 0);
	FAILS(azekura_kv_get(object, "d", 1, "\0", 1, room, 16), ENOENT, "no value");
	/* Bounds. */
	OK(azekura_kv_put(object, long_key, sizeof long_key - 1, "a", 1, big, sizeof big - 1, 0));
	IS(azekura_kv_get(object, long_key, sizeof long_key - 1, "a", 1, NULL, 0), sizeof big - 1);
	FAILS(azekura_kv_put(object, "d", 1, "a", 1, big, sizeof big, 0), E2BIG, "limit");
	FAILS(azekura_kv_put(object, long_key, sizeof long_key, "a", 1, "x", 1, 0), EINVAL, "1025");
	FAILS(azekura_kv_put(object, "d", 1, NULL, 0, "x", 1, 0), EINVAL, "'akey'");
	FAILS(azekura_kv_put(object, NULL, 1, "a", 1, "x", 1, 0), EFAULT, "'dkey'");
	FAILS(azekura_kv_get(object, "d", 1, "a", 1, NULL, 8), EFAULT, "'value'");
	FAILS(azekura_kv_put(NULL, "d", 1, "a", 1, "x", 1, 0), EINVAL, "object handle");
	/* Removal. */
	OK(azekura_kv_remove(object, "d", 1, "a", 1, AZEKURA_MUST_EXIST));
	FAILS(azekura_kv_remove(object, "d", 1, "a", 1, AZEKURA_MUST_EXIST), ENOENT, "no value");
	OK(azekura_kv_remove(object, "d", 1, "a", 1, AZEKURA_ALWAYS));
	OK(azekura_kv_remove_dkey(object, "d\0e", 3));
	FAILS(azekura_kv_get(object, "d\0e", 3, "\0", 1, room, 16), ENOENT, "no value");
	OK(azekura_object_sync(object));
	OK(azekura_object_remove(object));
	IS(azekura_kv_get(object, long_key, sizeof long_key - 1, "a", 1, NULL, 0), -ENOENT);
	OK(azekura_object_close(object));
}

static void batches(azekura_container *container)
{
	struct azekura_kv_update updates[AZEKURA_BATCH_MAX + 1];
	char names[AZEKURA_BATCH_MAX + 1][8], room[8];
	azekura_object *object;
	int at;

	memset(updates, 0, sizeof updates);
	for (at = 0; at <= AZEKURA_BATCH_MAX; at++) {
		updates[at].dkey = "row";
		updates[at].dkey_bytes = 3;
		updates[at].akey = names[at];
		updates[at].akey_bytes = (size_t)sprintf(names[at], "c%d", at);
		updates[at].value = names[at];
		updates[at].value_bytes = updates[at].akey_bytes;
	}
	OK(azekura_object_create(container, AZEKURA_SX, 0, 0, &object));
	OK(azekura_kv_update(object, updates, AZEKURA_BATCH_MAX));
	FAILS(azekura_kv_update(object, updates, AZEKURA_BATCH_MAX + 1), E2BIG, "256");
	OK(azekura_kv_update(object, NULL, 0));
	FAILS(azekura_kv_update(object, NULL, 1), EFAULT, "'updates'");
	/* One condition fails: nothing is done. */
	updates[0].value = "new";
	updates[0].value_bytes = 3;
	updates[1].condition = AZEKURA_MUST_NOT_EXIST;
	FAILS(azekura_kv_update(object, updates, 2), ECANCELED, "condition");
	IS(azekura_kv_get(object, "row", 3, "c0", 2, room, 8), 2);
	updates[1].condition = AZEKURA_MUST_EQUAL;
	updates[1].expected = "c1";
	updates[1].expected_bytes = 2;
	updates[1].remove = 1;
	OK(azekura_kv_update(object, updates, 2));
	IS(azekura_kv_get(object, "row", 3, "c0", 2, room, 8), 3);
	IS(azekura_kv_get(object, "row", 3, "c1", 2, room, 8), -ENOENT);
	/* Of several dkeys some live on other targets. */
	for (at = 0; at < 32; at++) {
		updates[at].dkey = names[at];
		updates[at].dkey_bytes = strlen(names[at]);
		updates[at].condition = 0;
	}
	FAILS(azekura_kv_update(object, updates, 32), EXDEV, "AZEKURA_S1");
	OK(azekura_object_close(object));
	OK(azekura_object_create(container, AZEKURA_S1, 0, 0, &object));
	OK(azekura_kv_update(object, updates, 32));
	OK(azekura_object_close(object));
}

static void listings(azekura_container *container)
{
	enum { KEYS = 1000 };
	static char seen[KEYS];
	azekura_object *object;
	azekura_keys *keys;
	const void *key;
	size_t bytes;
	char name[16], last[16] = "";
	int at, more, count = 0;

	OK(azekura_object_create(container, AZEKURA_SX, 0, 0, &object));
	OK(azekura_list_dkeys(object, &keys));
	IS(azekura_keys_next(keys, &key, &bytes), 0);
	IS(azekura_keys_next(keys, &key, &bytes), 0);
	OK(azekura_keys_close(keys));
	for (at = 0; at < KEYS; at++) {
		int length = sprintf(name, "k%04d", at);

		OK(azekura_kv_put(object, name, (size_t)length, "a", 1, name, 5, 0));
		OK(azekura_kv_put(object, "one", 3, name, (size_t)length, name, 5, 0));
	}
	OK(azekura_list_dkeys(object, &keys));
	while ((more = azekura_keys_next(keys, &key, &bytes)) > 0) {
		if (bytes == 3)
			continue;
		IS(bytes, 5);
		memcpy(name, key, 5);
		name[5] = '\0';
		at = atoi(name + 1);
		HOLDS(at >= 0 && at < KEYS && !seen[at]);
		seen[at] = 1;
		count++;
	}
	IS(more, 0);
	IS(count, KEYS);
	OK(azekura_keys_close(keys));
	OK(azekura_list_akeys(object, "one", 3, &keys));
	for (count = 0; (more = azekura_keys_next(keys, &key, &bytes)) > 0; count++) {
		memcpy(name, key, bytes);
		name[bytes] = '\0';
		HOLDS(strcmp(last, name) < 0);
		strcpy(last, name);
	}
	IS(count, KEYS);
	FAILS(azekura_keys_next(keys, NULL, &bytes), EFAULT, "'key'");
	FAILS(azekura_keys_next(NULL, &key, &bytes), EINVAL, "keys handle");
	OK(azekura_keys_close(keys));
	OK(azekura_keys_close(NULL));
	OK(azekura_object_remove(object));
	OK(azekura_object_close(object));
}

static void arrays(azekura_container *container)
{
	enum { BYTES = 1 << 20 };
	static unsigned char data[BYTES], back[BYTES + 100];
	azekura_object *object;
	size_t at;

	for (at = 0; at < BYTES; at++)
		data[at] = (unsigned char)(at * 7 + at / 4096);
	OK(azekura_object_create(container, AZEKURA_SX, 4096, 0, &object));
	IS(azekura_array_size(object), 0);
	IS(azekura_array_read(object, back, sizeof back, 0), 0);
	OK(azekura_array_write(object, data, BYTES, 10));
	IS(azekura_array_size(object), BYTES + 10);
	IS(azekura_array_read(object, back, sizeof back, 0), BYTES + 10);
	HOLDS(memcmp(back + 10, data, BYTES) == 0 && back[9] == 0);
	IS(azekura_array_read(object, back, 100, BYTES), 10);
	IS(azekura_array_read(object, back, 100, BYTES + 10), 0);
	IS(azekura_array_read(object, NULL, 0, 0), 0);
	OK(azekura_array_punch(object, 5000, 100000));
	IS(azekura_array_size(object), BYTES + 10);
	IS(azekura_array_read(object, back, BYTES, 10), BYTES);
	for (at = 0; at < BYTES; at++) {
		size_t place = at + 10;
		int hole = place >= 5000 && place < 105000;

		if (back[at] != (hole ? 0 : data[at]))
			check_failed(__FILE__, __LINE__, "punched array", (long long)at);
	}
	OK(azekura_array_truncate(object, 4999));
	IS(azekura_array_size(object), 4999);
	OK(azekura_array_truncate(object, 9000));
	IS(azekura_array_read(object, back, BYTES, 4990), 4010);
	HOLDS(back[8] == data[4988] && back[9] == 0);
	FAILS(azekura_array_write(object, data, 2, INT64_MAX), EFBIG, "2^63");
	FAILS(azekura_array_truncate(object, UINT64_MAX), EFBIG, "2^63");
	FAILS(azekura_array_write(object, NULL, 1, 0), EFAULT, "'data'");
	OK(azekura_kv_put(object, "d", 1, "a", 1, "x", 1, 0));
	OK(azekura_array_remove(object));
	IS(azekura_array_size(object), 0);
	IS(azekura_kv_get(object, "d", 1, "a", 1, NULL, 0), 1);
	OK(azekura_object_remove(object));
	OK(azekura_object_close(object));
	OK(azekura_object_close(NULL));
}

/* Arrays of records under two keys. */
static void records(azekura_container *container)
{
	struct azekura_value_keys keys = {"d", 1, "r", 1}, value = {"d", 1, "a", 1};
	struct azekura_records_info info;
	uint32_t written[3] = {1, 2, 3}, back[5];
	char akey[1024] = {'k'};
	struct azekura_value_keys too_long = {"d", 1, akey, sizeof akey};
	azekura_object *object;
	azekura_keys *listing;
	uint64_t index, count, found = 0;
	const void *name;
	size_t bytes;

	OK(azekura_object_create(container, AZEKURA_SX, 0, 0, &object));
	FAILS(azekura_records_read(object, &keys, 4, 0, back, 1), ENOENT, "no array of records");
	FAILS(azekura_records_write(object, &keys, 0, 0, NULL, 0), EINVAL, "");
	FAILS(azekura_records_write(object, &too_long, 4, 0, written, 1), EINVAL, "1016");
	OK(azekura_records_write(object, &keys, 4, 5, written, 3));
	OK(azekura_records_write(object, &keys, 4, 100000, written, 2));
	FAILS(azekura_records_write(object, &keys, 8, 0, written, 1), EINVAL, "");
	FAILS(azekura_records_write(object, &keys, 4, UINT64_MAX / 8, written, 1), EFBIG, "2^63");
	FAILS(azekura_records_read(object, &keys, 8, 0, back, 1), EINVAL, "have 4 bytes");
	OK(azekura_records_read(object, &keys, 4, 4, back, 5));
	HOLDS(back[0] == 0 && memcmp(back + 1, written, sizeof written) == 0 && back[4] == 0);
	OK(azekura_records_info(object, &keys, &info));
	HOLDS(info.record_bytes == 4 && info.records == 100002);
	for (index = 0; azekura_records_next(object, &keys, index, &index, &count) == 1; index += count) {
		HOLDS(index + count <= 50000 || index > 50000);
		found += index <= 5 && index + count >= 8;
		found += index <= 100000 && index + count >= 100002;
	}
	IS(found, 2);

	/* A value is in the way of an array, but not beside it. */
	OK(azekura_kv_put(object, "d", 1, "a", 1, "x", 1, 0));
	FAILS(azekura_records_write(object, &value, 4, 0, written, 1), EINVAL, "");
	OK(azekura_list_akeys(object, "d", 1, &listing));
	IS(azekura_keys_next(listing, &name, &bytes), 1);
	HOLDS(bytes == 1 && *(const char *)name == 'r');
	IS(azekura_keys_next(listing, &name, &bytes), 1);
	HOLDS(bytes == 1 && *(const char *)name == 'a');
	IS(azekura_keys_next(listing, &name, &bytes), 0);
	OK(azekura_keys_close(listing));
	OK(azekura_records_remove(object, &keys));
	OK(azekura_records_remove(object, &keys));
	FAILS(azekura_records_info(object, &keys, &info), ENOENT, "no array of records");
	OK(azekura_records_write(object, &keys, 2, 0, written, 1));
	OK(azekura_kv_remove_dkey(object, "d", 1));
	FAILS(azekura_records_info(object, &keys, &info), ENOENT, "no array of records");
	OK(azekura_records_write(object, &keys, 2, 0, written, 1));
	OK(azekura_object_remove(object));
	FAILS(azekura_records_info(object, &keys, &info), ENOENT, "no array of records");
	OK(azekura_object_close(object));
}

int main(int argc, char **argv)
{
	azekura_container *container, *other;
	azekura_object *object;
	azekura_pool *pool;

	HOLDS(argc == 2);
	versions();
	pool = pools(argv[1]);
	container = containers(pool);
	OK(azekura_container_open(pool, "default", 0, &other));
	ids(container, other);
	values(container);
	batches(container);
	listings(container);
	arrays(container);
	records(container);
	/* Handles may be closed in any order. */
	OK(azekura_object_create(container, AZEKURA_S1, 0, 0, &object));
	OK(azekura_container_close(other));
	OK(azekura_container_close(container));
	OK(azekura_container_close(NULL));
	OK(azekura_pool_close(pool));
	OK(azekura_kv_put(object, "d", 1, "a", 1, "x", 1, 0));
	OK(azekura_object_close(object));
	return 0;
}
