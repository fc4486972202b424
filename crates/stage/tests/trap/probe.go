// Reads, lists, works in and runs from a directory of a map, without a C library.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	dir := os.Args[1]
	content, err := os.ReadFile(filepath.Join(dir, "d/f"))
	check(err)
	fmt.Print(string(content))
	check(filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		check(err)
		if info.Mode().IsRegular() {
			below, _ := filepath.Rel(dir, path)
			fmt.Println(below, info.Size())
		}
		return nil
	}))
	run := func() {
		said, err := exec.Command("cat", filepath.Join(dir, "d/f")).Output()
		check(err)
		fmt.Print("ran ", string(said))
	}
	run()
	check(os.Chdir(filepath.Join(dir, "d")))
	cwd, err := os.Getwd()
	check(err)
	fmt.Println("in", cwd)
	run()
}
