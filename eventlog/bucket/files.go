package bucket

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/limits/durable"
)

const (
	segmentsFolder = "segments/"
	payloads       = segment.PayloadsFile
	floorsFile     = ".floors"

	checkpointsFolder = "checkpoints/"
	checkpointFile    = ".ckpt"
)

// Segment is a segment in a bucket.
type Segment struct {
	First, Last uint64
	Generation  uint32
	Sum         string // SHA-256 of the .log file, in hexadecimal
	Size        int64  // of both files
}

// Name returns the name of the segment, see [segment.Name].
func (s *Segment) Name() string { return segment.Name(s.First, s.Last, s.Generation) }

func (s *Segment) object(extension string) string {
	return segmentsFolder + s.Name() + "." + s.Sum + extension
}

func parseSegment(object string) (s Segment, ok bool) {
	rest, ok := strings.CutPrefix(object, segmentsFolder)
	rest, isLog := strings.CutSuffix(rest, segment.LogFile)
	name, sum, _ := strings.Cut(rest, ".")
	if !ok || !isLog || !isSum(sum) {
		return s, false
	}
	s.Sum = sum
	s.First, s.Last, s.Generation, ok = segment.ParseName(name)
	return s, ok
}

func isSum(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == 32
}

// Floors are what retention has erased of each kind, by plural.group.
type Floors map[string]Floor

// Floor says what of a kind may be erased: the contents of versions that were replaced before a revision, and the records
// of changes before another one.
type Floor struct {
	Contents uint64 `json:"contents"`
	Records  uint64 `json:"records,omitempty"`
}

// Raise raises the floors to those of others, where these are higher.
func (f Floors) Raise(others Floors) {
	for kind, other := range others {
		f[kind] = Floor{max(f[kind].Contents, other.Contents), max(f[kind].Records, other.Records)}
	}
}

// PutSegment stores a segment whose files are in a folder, and reads it back. floors are what has been erased up to its
// generation.
func (b *Bucket) PutSegment(ctx context.Context, dir string, info *segment.Info, floors Floors) (Segment, error) {
	s := Segment{First: info.First, Last: info.Last, Generation: info.Generation, Sum: hex.EncodeToString(info.Files[0].SHA256[:]), Size: info.Size()}
	if err := b.putFile(ctx, s.object(payloads), filepath.Join(dir, info.Files[1].Name), info.Files[1].SHA256); err != nil {
		return s, err
	}
	if s.Generation > 0 {
		text, err := json.Marshal(floors)
		if err != nil {
			return s, err
		}
		if err := b.store.Put(ctx, s.object(floorsFile), bytes.NewReader(text), int64(len(text))); err != nil {
			return s, err
		}
	}
	return s, b.putFile(ctx, s.object(segment.LogFile), filepath.Join(dir, info.Files[0].Name), info.Files[0].SHA256)
}

// putFile stores a file that has a SHA-256.
func (b *Bucket) putFile(ctx context.Context, object, path string, sum [32]byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	if is, err := stores.SumOf(io.NewSectionReader(f, 0, stat.Size())); err != nil || is != hex.EncodeToString(sum[:]) {
		return errors.Join(&segment.DamagedError{File: path, Reason: "its SHA-256 is " + is + ", so it is not copied to the bucket"}, err)
	}
	return b.store.Put(ctx, object, f, stat.Size())
}

// FetchSegment copies the files of a segment into a folder, and returns the path of the .log file, and what has been
// erased up to its generation. What an interrupted call has left there is used.
func (b *Bucket) FetchSegment(ctx context.Context, s Segment, dir string) (path string, floors Floors, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, s.Name()+segment.LogFile)
	if floors, err = b.ReadFloors(ctx, s); err != nil {
		return "", nil, err
	}
	if err := b.fetchFile(ctx, s.object(segment.LogFile), path, s.Sum); err != nil {
		return "", nil, err
	}
	// The .log file says which .payloads file belongs to it: segment.Verify compares them.
	return path, floors, b.fetchFile(ctx, s.object(payloads), filepath.Join(dir, s.Name()+payloads), "")
}

// ReadFloors returns what has been erased up to the generation of a segment; nil if nothing has been.
func (b *Bucket) ReadFloors(ctx context.Context, s Segment) (floors Floors, err error) {
	if s.Generation == 0 {
		return nil, nil
	}
	err = b.store.Read(ctx, s.object(floorsFile), func(r io.Reader) error { return json.NewDecoder(r).Decode(&floors) })
	return floors, err
}

// fetchFile copies a file to a path, unless it is there. If sum is not empty, it is the SHA-256 that it must have.
func (b *Bucket) fetchFile(ctx context.Context, object, path, sum string) error {
	if there, err := sumOf(path); err == nil && sum != "" && there == sum {
		return nil
	}
	return b.store.Read(ctx, object, func(r io.Reader) error {
		return durable.WriteFile(path, func(w io.Writer) error {
			is, err := stores.SumOf(io.TeeReader(r, w))
			if err == nil && sum != "" && is != sum {
				err = stores.Final(fmt.Errorf("%s of the bucket %s is damaged: its SHA-256 is %s; remove it there, and a replica that has it stores it again", object, b.place, is))
			}
			return err
		})
	})
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return stores.SumOf(f)
}

// Verify reads a segment in full, and returns an error if it is not the same as the one of an archive. dir is a folder for
// files.
func (b *Bucket) Verify(ctx context.Context, s Segment, info *segment.Info, dir string) (err error) {
	if s.Sum == hex.EncodeToString(info.Files[0].SHA256[:]) {
		for extension, sum := range map[string][32]byte{segment.LogFile: info.Files[0].SHA256, payloads: info.Files[1].SHA256} {
			var is string
			err := b.store.Read(ctx, s.object(extension), func(r io.Reader) (err error) { is, err = stores.SumOf(r); return err })
			if err != nil {
				return err
			}
			if is != hex.EncodeToString(sum[:]) {
				return fmt.Errorf("%s of the bucket %s is damaged: its SHA-256 is %s", s.object(extension), b.place, is)
			}
		}
		return nil
	}
	// Another generation, or another version of the compression: then what counts is what is in it.
	path, _, err := b.FetchSegment(ctx, s, dir)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.Remove(path), os.Remove(strings.TrimSuffix(path, segment.LogFile)+payloads))
	}()
	opened, err := segment.Open(path, nil)
	if err != nil {
		return err
	}
	sum, err := segment.Sum(path)
	if err != nil {
		return err
	}
	opened.SetSum(sum)
	if err := opened.Verify(ctx); err != nil {
		return err
	}
	if is := opened.Info(); is.Before != info.Before || is.After != info.After {
		return fmt.Errorf("%s of the bucket %s is of another history than this replica's", s.object(segment.LogFile), b.place)
	}
	return nil
}

// Remove removes a segment: first the file with which it is there.
func (b *Bucket) Remove(ctx context.Context, s Segment) error {
	for _, extension := range []string{segment.LogFile, floorsFile, payloads} {
		if err := b.store.Remove(ctx, s.object(extension)); err != nil {
			return err
		}
	}
	return nil
}

// Checkpoint is a checkpoint in a bucket.
type Checkpoint struct {
	Revision uint64
	Sum      string // SHA-256, in hexadecimal
	Size     int64
}

func (c *Checkpoint) object() string {
	return fmt.Sprintf("%s%020d.%s%s", checkpointsFolder, c.Revision, c.Sum, checkpointFile)
}

func parseCheckpoint(object string) (c Checkpoint, ok bool) {
	rest, ok := strings.CutPrefix(object, checkpointsFolder)
	rest, is := strings.CutSuffix(rest, checkpointFile)
	digits, sum, _ := strings.Cut(rest, ".")
	revision, err := strconv.ParseUint(digits, 10, 64)
	return Checkpoint{Revision: revision, Sum: sum}, ok && is && err == nil && len(digits) == 20 && isSum(sum)
}

// PutCheckpoint stores the checkpoint of a revision, and reads it back.
func (b *Bucket) PutCheckpoint(ctx context.Context, revision uint64, path string) (Checkpoint, error) {
	f, err := os.Open(path)
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return Checkpoint{}, err
	}
	sum, err := stores.SumOf(io.NewSectionReader(f, 0, stat.Size()))
	if err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{Revision: revision, Sum: sum, Size: stat.Size()}
	return c, b.store.Put(ctx, c.object(), f, stat.Size())
}

// FetchCheckpoint copies a checkpoint to a path.
func (b *Bucket) FetchCheckpoint(ctx context.Context, c Checkpoint, path string) error {
	return b.fetchFile(ctx, c.object(), path, c.Sum)
}

// RemoveCheckpoint removes a checkpoint.
func (b *Bucket) RemoveCheckpoint(ctx context.Context, c Checkpoint) error {
	return b.store.Remove(ctx, c.object())
}

// Gone reports whether an error means that another replica has removed or replaced a file meanwhile.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
