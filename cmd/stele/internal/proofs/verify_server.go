package proofs

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	serverfiles "stele.dev/stele/cmd/stele/internal/backup"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/eventlog/verify"
)

// serverSource returns the log of a server, which is read by the paths that backups are made from. Segments are kept in
// a folder only while they are verified.
func serverSource(ctx context.Context, config *rest.Config, folder string) (verify.Source, error) {
	files, err := serverfiles.NewServer(config)
	if err != nil {
		return verify.Source{}, err
	}
	return sourceOf(ctx, files, config.Host, folder)
}

// sourceOf returns the log of files, which name says where they are.
func sourceOf(ctx context.Context, files backup.Source, name, folder string) (verify.Source, error) {
	state, err := files.State(ctx)
	if err != nil {
		return verify.Source{}, err
	}
	id, err := hex.DecodeString(state.Log)
	if err != nil || len(id) != len(eventlog.ID{}) {
		return verify.Source{}, fmt.Errorf("the server names its log %q, which is not the id of one", state.Log)
	}
	r := &remote{files: files, state: state, id: eventlog.ID(id), folder: folder}
	return verify.Source{
		ID: r.id, Name: name, Segments: r.segments(ctx), Batches: r.batches,
		Confirm: func(_ context.Context, at eventlog.Head) error {
			if tip := state.Head.Head(r.id); at != tip {
				return fmt.Errorf("%w: its newest position is %v, its batches end at %v", eventlog.ErrDiverged, tip, at)
			}
			return nil
		},
	}, nil
}

// remote is the log of a server, as it was when it was asked for its state.
type remote struct {
	files  backup.Source
	state  *backup.State
	id     eventlog.ID
	folder string
}

// segments downloads one segment after the other.
func (r *remote) segments(ctx context.Context) iter.Seq2[*segment.Segment, error] {
	return func(yield func(*segment.Segment, error) bool) {
		for _, s := range r.state.Segments {
			of, err := r.segment(ctx, s)
			more := yield(of, err)
			for _, file := range s.Files {
				os.Remove(r.path(file))
			}
			if !more || err != nil {
				return
			}
		}
	}
}

// path returns where a file is kept.
func (r *remote) path(file backup.StateFile) string {
	return filepath.Join(r.folder, filepath.Base(filepath.FromSlash(file.Name)))
}

func (r *remote) segment(ctx context.Context, s backup.Segment) (*segment.Segment, error) {
	for _, file := range s.Files {
		if err := r.download(ctx, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
	}
	for _, file := range s.Files {
		path := r.path(file)
		if filepath.Ext(path) != segment.LogFile {
			continue
		}
		of, err := segment.Open(path, segment.NewCache(1<<20))
		if err != nil {
			return nil, err
		}
		sum, err := segment.Sum(path)
		of.SetSum(sum) // what is in it is compared with the hash chain
		return of, err
	}
	return nil, fmt.Errorf("the server names no %s file of the segment after revision %d", segment.LogFile, s.Before.Revision)
}

func (r *remote) download(ctx context.Context, file backup.StateFile) error {
	from, err := r.files.File(ctx, file.Name, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(r.path(file), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if closeErr := to.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (r *remote) batches(ctx context.Context, after eventlog.Head, visit func(*eventlog.Parts) error) error {
	body, err := r.files.Batches(ctx, after.Revision, r.state.Head.Revision)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = backup.ReadBatches(body, after, func(b *eventlog.Batch, value []byte) error {
		parts, err := eventlog.Split(b.First, value)
		if err != nil {
			return err
		}
		return visit(parts)
	})
	return err
}
