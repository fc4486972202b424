// Walks through a tree as Go programs do, many files at the same time, without the C library.
package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

func sum(path string, into *string, done *sync.WaitGroup) {
	defer done.Done()
	bytes, err := os.ReadFile(path)
	if err != nil {
		*into = err.Error()
		return
	}
	*into = fmt.Sprintf("%d bytes %x", len(bytes), sha256.Sum256(bytes))
}

func main() {
	var names []string
	var sums []*string
	var done sync.WaitGroup
	err := filepath.WalkDir(os.Args[1], func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := ""
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case entry.Type()&fs.ModeSymlink != 0:
			text, err = os.Readlink(path)
			if _, lost := os.Stat(path); lost != nil {
				text += " leads nowhere: " + lost.Error()
			}
		case entry.Type().IsRegular():
			done.Add(1)
			text = info.ModTime().UTC().String()
			sums = append(sums, new(string))
			names = append(names, fmt.Sprintf("%q", path))
			go sum(path, sums[len(sums)-1], &done)
		}
		fmt.Printf("%q %v %s\n", path, info.Mode(), text)
		return err
	})
	done.Wait()
	for index, name := range names {
		fmt.Println(name, *sums[index])
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
