package etcdlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrLost reports that etcd's folder lacks acknowledged writes. etcd itself would wait for ever, or go on
// silently.
var ErrLost = errors.New("acknowledged writes are missing")

// inspect reads etcd's folder before etcd does. It returns an error for damage that etcd would not
// survive or not notice. It removes the files of a first start that ended before it could acknowledge
// anything.
//
// A single member elects itself only if the write-ahead log or the database says that it is a member, and
// the first entry of the log says so. A log without a committed entry therefore acknowledged nothing,
// unless entries were cut off. Any of these proves that they were: the database has applied entries or has
// keys, there are requests after the missing entry, or the caller knows that the folder was in use.
func inspect(o EmbedOptions) error {
	member := filepath.Join(o.Dir, "member")
	db, err := readDatabase(filepath.Join(member, "snap", "db"))
	if err != nil {
		return err
	}
	log, err := readWAL(filepath.Join(member, "wal"), db.applied == 0)
	if err != nil {
		return err
	}
	used := o.Used || db.applied > 0 || db.keys || log.requests || log.files > 1
	switch {
	case log.files == 0 && used:
		return fmt.Errorf("%w: the write-ahead log is gone: restore the folder member/wal, or all of it, from a backup", ErrLost)
	case log.committed == 0 && !used:
		if log.files > 0 {
			o.Log.Info("a first start ended before anything could be acknowledged; this one begins again", "folder", o.Dir)
		}
		return beginAgain(member)
	case log.committed == 0:
		return fmt.Errorf("%w: the write-ahead log %s has no committed entry: restore the folder from a backup", ErrLost, log.file)
	case db.unreadable != nil:
		return Damaged(db.file, db.unreadable)
	case max(log.last, log.snapshot) < db.applied:
		return fmt.Errorf("%w: the write-ahead log %s ends at entry %d, but the database has entry %d: restore the folder from a backup",
			ErrLost, log.file, max(log.last, log.snapshot), db.applied)
	case db.applied < log.snapshot:
		return fmt.Errorf("%w: the database %s has entry %d, but the write-ahead log begins after entry %d: restore the folder from a backup",
			ErrLost, db.file, db.applied, log.snapshot)
	}
	return nil
}

// beginAgain removes the files that a first start writes before its first entry.
func beginAgain(member string) error {
	return errors.Join(os.RemoveAll(filepath.Join(member, "wal")), os.RemoveAll(filepath.Join(member, "snap", "db")))
}
