package etcdlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// writeAhead describes the end of etcd's write-ahead log.
type writeAhead struct {
	files     int
	file      string // the file that was read last: the newest with an entry, or the oldest
	last      uint64 // index of the last entry that was read; 0 if there is none
	committed uint64 // index of the last committed entry
	snapshot  uint64 // index of the newest snapshot: earlier entries are in the database
	requests  bool   // an entry has a request
}

// readWAL reads all files of the write-ahead log, or the newest ones back to one that has an entry. Like
// etcd, it stops at the first incomplete record: a crash may leave one.
func readWAL(dir string, all bool) (writeAhead, error) {
	files, err := walFiles(dir)
	if err != nil {
		return writeAhead{}, err
	}
	w := writeAhead{files: len(files)}
	for _, w.file = range slices.Backward(files) {
		if err := w.read(); err != nil {
			return w, err
		}
		if w.last > 0 && !all {
			break
		}
	}
	return w, nil
}

// walFiles returns the files of a write-ahead log in order; none if the folder does not exist. It does not
// use [filepath.Glob], because the folder's path may contain brackets.
func walFiles(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries { // sorted by name
		if filepath.Ext(e.Name()) == ".wal" {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

func (w *writeAhead) read() error {
	f, err := os.Open(w.file)
	if err != nil {
		return err
	}
	defer f.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	for {
		var record walpb.Record
		err := decoder.Decode(&record)
		if err == nil {
			err = w.add(decoder, &record)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("the write-ahead log %s is damaged: %w: restore the folder from a backup", w.file, err)
		}
	}
}

func (w *writeAhead) add(decoder wal.Decoder, record *walpb.Record) error {
	switch record.GetType() {
	case wal.CrcType:
		decoder.UpdateCRC(record.GetCrc())
	case wal.EntryType:
		var entry raftpb.Entry
		if err := proto.Unmarshal(record.Data, &entry); err != nil {
			return err
		}
		w.last = max(w.last, entry.GetIndex())
		w.requests = w.requests || entry.GetType() == raftpb.EntryNormal && len(entry.Data) > 0
	case wal.StateType:
		var state raftpb.HardState
		if err := proto.Unmarshal(record.Data, &state); err != nil {
			return err
		}
		w.committed = max(w.committed, state.GetCommit())
	case wal.SnapshotType:
		var snapshot walpb.Snapshot
		if err := proto.Unmarshal(record.Data, &snapshot); err != nil {
			return err
		}
		w.snapshot = max(w.snapshot, snapshot.GetIndex())
	}
	return nil
}
