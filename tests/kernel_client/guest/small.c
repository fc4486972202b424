/* A small program that is built and run on the mount. */
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    static const char text[] = "written by a program on the mount\n";
    char read[sizeof text] = "";
    FILE *file;

    if (count != 2 || (file = fopen(arguments[1], "w+")) == NULL)
        return 1;
    if (fputs(text, file) < 0 || fseek(file, 0, SEEK_SET) != 0)
        return 2;
    if (fgets(read, sizeof read, file) == NULL || strcmp(read, text) != 0)
        return 3;
    return fclose(file) == 0 ? 0 : 4;
}
