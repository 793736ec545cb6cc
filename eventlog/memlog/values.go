package memlog

import (
	"bytes"
	"context"

	"stele.dev/stele/eventlog"
)

var _ eventlog.Values = (*Backend)(nil)

// Value implements [eventlog.Values]. For schedules it is a Read.
func (b *Backend) Value(ctx context.Context, name string) ([]byte, error) {
	return call(ctx, b, Read, func() []byte { return b.store.value(name) })
}

// Swap implements [eventlog.Values]. For schedules it is an Append.
func (b *Backend) Swap(ctx context.Context, name string, from, to []byte) (bool, error) {
	return call(ctx, b, Append, func() bool { return b.store.swap(name, from, to) })
}

// Clear implements [eventlog.Values]. For schedules it is a Trim.
func (b *Backend) Clear(ctx context.Context) error {
	_, err := call(ctx, b, Trim, func() struct{} { b.store.clear(); return struct{}{} })
	return err
}

func (s *Store) value(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.named(name)
}

func (s *Store) swap(name string, from, to []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	value := s.named(name)
	if !bytes.Equal(*value, from) {
		return false
	}
	*value = bytes.Clone(to)
	return true
}

func (s *Store) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = nil
}

// named returns the place of a value.
func (s *Store) named(name string) *[]byte {
	if name == eventlog.HeadValue {
		return &s.head
	}
	if s.values == nil {
		s.values = map[string]*[]byte{}
	}
	if s.values[name] == nil {
		s.values[name] = new([]byte)
	}
	return s.values[name]
}
