/* Each rank reads its part of a file by MPI-IO and by itself, and a table that all of them open at the same
 * moment; the first prints what came together. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "%s: error %d\n", what, code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned long add(unsigned long sum, const unsigned char *bytes, long count) {
    for (long at = 0; at < count; at++) sum = sum * 31 + bytes[at];
    return sum;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) MPI_Abort(MPI_COMM_WORLD, 2);

    MPI_File file;
    MPI_Offset length;
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file), "open");
    check(MPI_File_get_size(file, &length), "size");
    long part = length / ranks, count = 0;
    unsigned char *bytes = malloc(part), *again = malloc(part);
    check(MPI_File_read_at_all(file, rank * part, bytes, part, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    check(MPI_File_close(&file), "close");

    FILE *plain = fopen(argv[1], "rb");
    if (!plain || fseek(plain, rank * part, SEEK_SET)) MPI_Abort(MPI_COMM_WORLD, 3);
    count = fread(again, 1, part, plain);
    fclose(plain);

    MPI_Barrier(MPI_COMM_WORLD);
    long number, total = 0;
    FILE *table = fopen(argv[2], "r");
    while (table && fscanf(table, "%ld", &number) == 1) total += number * (rank + 1);
    if (table) fclose(table);

    unsigned long mine[4] = {add(0, bytes, part), add(0, again, count), (unsigned long)count,
                             (unsigned long)total};
    unsigned long *all = malloc(ranks * sizeof mine);
    MPI_Gather(mine, 4, MPI_UNSIGNED_LONG, all, 4, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
    for (int other = 0; rank == 0 && other < ranks; other++) {
        printf("rank %d of %d:", other, ranks);
        for (int word = 0; word < 4; word++) printf(" %lx", all[4 * other + word]);
        printf("\n");
    }
    MPI_Finalize();
    return 0;
}
