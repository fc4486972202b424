// Reads the beginning of a file, says what it was, and then the rest.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	head := make([]byte, 1<<20)
	if _, err = io.ReadFull(file, head); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("head %x\n", sha256.Sum256(head))
	rest, err := io.ReadAll(file)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("rest %x\n", sha256.Sum256(rest))
}
