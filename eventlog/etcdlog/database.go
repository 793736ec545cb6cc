package etcdlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// database is what etcd's database says.
type database struct {
	file    string
	applied uint64 // index of the last entry of the write-ahead log that is in it
	keys    bool   // it has keys
	// unreadable is why it cannot be opened, if it is so small that its creation may have
	// been cut off.
	unreadable error
}

// lockedWithin bounds how long another process may take to let go of the database.
const lockedWithin = 2 * time.Second

// unfinishedPages is how many pages a database has that is being created. It grows with its
// first commit.
const unfinishedPages = 4

// readDatabase reads a database that no process uses; one that does not exist is empty. The
// file is mapped into memory: a page that is not in it, or leads elsewhere, is an error and
// not the end of the process.
func readDatabase(file string) (db database, err error) {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return database{file: file}, nil
	}
	if err != nil {
		return database{}, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // of this goroutine alone
	defer func() {
		if v := recover(); v != nil {
			db, err = database{}, Damaged(file, fmt.Errorf("%v", v))
		}
	}()
	bolt, err := bbolt.Open(file, 0, &bbolt.Options{ReadOnly: true, Timeout: lockedWithin})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return database{}, fmt.Errorf("%s is in use by another process; stop that first", file)
	case err != nil && info.Size() <= int64(unfinishedPages*os.Getpagesize()):
		return database{file: file, unreadable: err}, nil
	case err != nil:
		return database{}, Damaged(file, err)
	}
	defer bolt.Close()
	db = database{file: file}
	err = bolt.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return Damaged(file, fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size()))
		}
		db.read(tx)
		return nil
	})
	return db, err
}

// Damaged is the error of a database with something wrong in it.
func Damaged(file string, err error) error {
	return fmt.Errorf("the database %s is damaged: %w: restore the folder from a backup", file, err)
}

func (d *database) read(tx *bbolt.Tx) {
	if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
		if index := meta.Get(schema.MetaConsistentIndexKeyName); len(index) == 8 {
			d.applied = binary.BigEndian.Uint64(index)
		}
	}
	if keys := tx.Bucket(schema.Key.Name()); keys != nil {
		key, _ := keys.Cursor().First()
		d.keys = key != nil
	}
}

// CheckDatabase reads every page that is in use of the database in a file, and returns what
// is wrong with it. A damaged one can end the process: call it in one of its own, see
// [EmbedOptions.Check].
func CheckDatabase(file string) error {
	bolt, err := bbolt.Open(file, 0, &bbolt.Options{ReadOnly: true, Timeout: lockedWithin})
	if err != nil {
		return err
	}
	defer bolt.Close()
	return bolt.View(func(tx *bbolt.Tx) error {
		var first error
		for err := range tx.Check() {
			if first == nil {
				first = err
			}
		}
		return first
	})
}
