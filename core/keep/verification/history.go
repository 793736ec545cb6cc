package verification

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/history"
)

// History is the index of the past. It is rebuilt in a folder of its own, from all that the log still has.
type History struct {
	Store *history.Store
	Log   eventlog.Reader
	Start eventlog.Head
	// Past compares the older part of the log, of which the index is rebuilt, with what the log has recorded of it; nil for none. It calls
	// pause between pieces of work.
	Past func(ctx context.Context, pause func() error) error
	// Dir is the folder for the index that is rebuilt; it is removed afterwards.
	Dir string

	mu     sync.Mutex
	floors map[schema.GroupResource]uint64 // of the comparison
}

// Name implements [Projection].
func (*History) Name() string { return "history" }

// Live implements [Projection].
func (h *History) Live(context.Context) (State, error) {
	return &indexState{History: h, store: h.Store, revision: h.Store.Revision()}, nil
}

// Rebuild implements [Projection].
func (h *History) Rebuild(ctx context.Context, revision uint64, pause func() error) (State, error) {
	if h.Past != nil {
		if err := h.Past(ctx, pause); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(h.Dir); err != nil { // of a process that was killed
		return nil, err
	}
	store, err := history.Open(history.Options{Dir: h.Dir, Log: &slowly{h.Log, pause}, Start: h.Start})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- store.Run(running) }()
	s := &indexState{History: h, store: store, revision: revision, close: func() error {
		stop()
		<-ended
		return errors.Join(store.Close(), os.RemoveAll(h.Dir))
	}}
	if err := store.Wait(ctx, revision); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.floors = h.Store.Floors()
	return s, nil
}

// slowly is a log that pauses before each read.
type slowly struct {
	eventlog.Reader
	pause func() error
}

func (s *slowly) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if err := s.pause(); err != nil {
		return nil, err
	}
	return s.Reader.Next(ctx, after)
}

// indexState is an index as a [State].
type indexState struct {
	*History
	store    *history.Store
	revision uint64
	close    func() error
}

var _ io.Closer = (*indexState)(nil)

func (s *indexState) Revision() uint64 { return s.revision }

// Close removes an index that was rebuilt.
func (s *indexState) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// indexVersion changes with the meaning of the records.
const indexVersion = 1

// Save implements [State]. What retention erases meanwhile is no difference: it is an error then.
func (s *indexState) Save(to checkpoint.Sink) error {
	s.mu.Lock()
	floors := s.floors
	s.mu.Unlock()
	if err := to.Begin("versions", indexVersion); err != nil {
		return err
	}
	var record []byte
	err := s.store.Each(context.Background(), floors, s.revision, func(v history.Version) error {
		record = record[:0]
		for _, text := range []string{v.Group, v.Resource, v.Namespace, v.Name} {
			record = append(binary.AppendUvarint(record, uint64(len(text))), text...)
		}
		record = binary.AppendUvarint(record, v.Revision)
		if v.Deleted {
			record = append(record, 1)
		}
		return to.Put(record)
	})
	if err == nil && !maps.Equal(floors, s.Store.Floors()) {
		return errors.New("retention has erased a part of the past meanwhile; try again")
	}
	return err
}

// Describe implements [State].
func (s *indexState) Describe(_ string, record []byte) string {
	var texts [4]string
	for i := range texts {
		n, size := binary.Uvarint(record)
		texts[i], record = string(record[size:size+int(n)]), record[size+int(n):]
	}
	revision, _ := binary.Uvarint(record)
	name := texts[3]
	if texts[2] != "" {
		name = texts[2] + "/" + name
	}
	return fmt.Sprintf("%s %s of revision %d", schema.GroupResource{Group: texts[0], Resource: texts[1]}, name, revision)
}
