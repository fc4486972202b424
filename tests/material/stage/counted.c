/* What the Python module needs. */
long counted(const char *text) {
    long count = 0;
    while (text[count]) count++;
    return count * 1000 + 7;
}
