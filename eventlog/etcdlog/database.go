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
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// database describes the file of etcd's database.
type database struct {
	file    string
	applied uint64 // index of the last write-ahead log entry that the database has applied
	keys    bool   // the database has keys
	// unreadable is the error of opening the file, if the file is so small that its creation may have
	// been interrupted.
	unreadable error
}

// lockTimeout is how long to wait until another process releases the database.
const lockTimeout = 2 * time.Second

// unfinishedPages is the number of pages of a database whose creation has not finished: the first commit
// adds more.
const unfinishedPages = 4

// readDatabase reads a database that no process uses; it treats a missing file as an empty database. The
// file is mapped into memory. A page that is missing or has a wrong pointer results in an error, and does
// not end the process.
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
	bolt, err := bbolt.Open(file, 0, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
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
			return Damaged(file, fmt.Errorf("it has %d of %d bytes", info.Size(), tx.Size()))
		}
		db.read(tx)
		return nil
	})
	return db, err
}

// Damaged returns the error of a damaged database, with what to do.
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

// CheckDatabase reads every used page of a database file, and returns the first problem. A damaged page
// can end the process: call CheckDatabase in a process of its own, see [EmbedOptions.Check].
func CheckDatabase(file string) error {
	bolt, err := bbolt.Open(file, 0, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
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

// DatabaseUsage is how full a database file is.
type DatabaseUsage struct {
	Used, Allocated int64 // bytes; the file has what is allocated
	NoSpace         bool  // etcd has raised the alarm NOSPACE
}

// ReadUsage reads how full a database file is that no process uses.
func ReadUsage(file string) (usage DatabaseUsage, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // of this goroutine alone
	defer func() {
		if v := recover(); v != nil {
			err = Damaged(file, fmt.Errorf("%v", v))
		}
	}()
	bolt, err := bbolt.Open(file, 0, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout, PreLoadFreelist: true})
	if err != nil {
		return usage, Damaged(file, err)
	}
	defer bolt.Close()
	return usage, bolt.View(func(tx *bbolt.Tx) error {
		usage.Allocated = tx.Size()
		usage.Used = tx.Size() - int64(bolt.Stats().FreePageN)*int64(bolt.Info().PageSize)
		alarms := tx.Bucket(schema.Alarm.Name())
		if alarms == nil {
			return nil
		}
		return alarms.ForEach(func(key, _ []byte) error {
			var alarm etcdserverpb.AlarmMember
			if proto.Unmarshal(key, &alarm) == nil && alarm.GetAlarm() == etcdserverpb.AlarmType_NOSPACE {
				usage.NoSpace = true
			}
			return nil
		})
	})
}
