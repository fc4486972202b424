/*
 * Objects: a small table of measurements. Each row is a dkey, each column an akey, so all values of a
 * row lie on one target and are set in one atomic step; rows are spread over all targets. A counter
 * shows compare and swap. The object's id is printed: with it any process finds the table again.
 *
 *   ./table POOL [OBJECT-ID]
 */
#include <azekura.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int failed(void)
{
	fprintf(stderr, "%s\n", azekura_error_message());
	return 1;
}

static int put_row(azekura_object *table, const char *row, double celsius, double hectopascal)
{
	struct azekura_kv_update columns[2];
	size_t at;

	memset(columns, 0, sizeof columns);
	for (at = 0; at < 2; at++) {
		columns[at].dkey = row;
		columns[at].dkey_bytes = strlen(row);
		columns[at].akey = at == 0 ? "celsius" : "hectopascal";
		columns[at].akey_bytes = strlen(columns[at].akey);
		columns[at].value = at == 0 ? &celsius : &hectopascal;
		columns[at].value_bytes = sizeof(double);
	}
	return azekura_kv_update(table, columns, 2);
}

/* Adds 1 to a counter that others may be adding to as well. */
static int count(azekura_object *table, long *counted)
{
	long before, after = 1;
	int done = azekura_kv_put(table, "count", 5, "n", 1, &after, sizeof after,
				  AZEKURA_MUST_NOT_EXIST);

	while (done == -EEXIST || done == -ECANCELED) {
		ssize_t got = azekura_kv_get(table, "count", 5, "n", 1, &before, sizeof before);

		if (got < 0)
			return (int)got;
		after = before + 1;
		done = azekura_kv_replace(table, "count", 5, "n", 1, &before, sizeof before, &after,
					  sizeof after);
	}
	*counted = after;
	return done;
}

static int show_row(azekura_object *table, const void *row, size_t bytes)
{
	const void *column;
	size_t column_bytes;
	azekura_keys *columns;
	int more;

	if (azekura_list_akeys(table, row, bytes, &columns) < 0)
		return -1;
	printf("%.*s:", (int)bytes, (const char *)row);
	while ((more = azekura_keys_next(columns, &column, &column_bytes)) > 0) {
		double value;
		ssize_t got = azekura_kv_get(table, row, bytes, column, column_bytes, &value,
					     sizeof value);

		if (got == (ssize_t)sizeof value)
			printf(" %.*s=%.1f", (int)column_bytes, (const char *)column, value);
	}
	printf("\n");
	azekura_keys_close(columns);
	return more;
}

static int show(azekura_object *table)
{
	const void *row;
	size_t bytes;
	azekura_keys *rows;
	int more;

	if (azekura_list_dkeys(table, &rows) < 0)
		return -1;
	while ((more = azekura_keys_next(rows, &row, &bytes)) > 0) {
		if (bytes == 5 && memcmp(row, "count", 5) == 0)
			continue;
		if (show_row(table, row, bytes) < 0)
			break;
	}
	azekura_keys_close(rows);
	return more;
}

int main(int argc, char **argv)
{
	struct azekura_object_info info;
	char text[AZEKURA_OID_TEXT_BYTES];
	azekura_pool *pool;
	azekura_container *container;
	azekura_object *table;
	azekura_oid oid;
	long counted;
	int done;

	if (argc < 2) {
		fprintf(stderr, "usage: %s POOL [OBJECT-ID]\n", argv[0]);
		return 2;
	}
	if (azekura_pool_open(argv[1], NULL, &pool) < 0 ||
	    azekura_container_open(pool, "default", 0, &container) < 0)
		return failed();
	if (argc > 2)
		done = azekura_oid_parse(argv[2], &oid) < 0
			       ? -1
			       : azekura_object_open(container, oid, &table);
	else
		done = azekura_object_create(container, AZEKURA_SX, 0, 0, &table);
	if (done < 0)
		return failed();
	if (put_row(table, "oslo", 4.5, 1009.0) < 0 || put_row(table, "nara", 18.0, 1013.5) < 0 ||
	    count(table, &counted) < 0 || show(table) < 0)
		return failed();
	azekura_object_info(table, &info);
	azekura_oid_format(info.oid, text, sizeof text);
	printf("filled %ld times; object %s\n", counted, text);
	azekura_object_close(table);
	azekura_container_close(container);
	azekura_pool_close(pool);
	return 0;
}
