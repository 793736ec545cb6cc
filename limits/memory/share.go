package memory

import "context"

// Share is a share of the budget that can change its size. It is safe for concurrent use.
type Share struct {
	guard *Guard
	kind  Kind
	n     int64 // guarded by Guard.mu; 0 if it is given back
}

// Share takes a share of n bytes as [Guard.Take] does. The caller must call [Share.Free] once it has freed the memory.
func (g *Guard) Share(ctx context.Context, k Kind, n int64) (*Share, error) {
	if err := g.acquire(ctx, "", k, n); err != nil {
		return nil, err
	}
	return &Share{g, k, n}, nil
}

// Grow makes the share larger by n bytes, and reports whether there was room for that.
func (s *Share) Grow(n int64) bool {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refresh()
	if s.n == 0 || len(g.waiting[s.kind]) > 0 || !g.fits(s.kind, n) {
		return false
	}
	s.resize(s.n + n)
	return true
}

// Fit makes the share n bytes, whether there is room or not, because the memory is used already.
func (s *Share) Fit(n int64) {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.n > 0 {
		s.resize(n)
		g.grant()
	}
}

// Size returns the size of the share, 0 after [Share.Free].
func (s *Share) Size() int64 {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	return s.n
}

// Free gives the share back. Later calls do nothing.
func (s *Share) Free() {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	if s.n > 0 {
		s.guard.free(s.kind, s.n)
		s.n = 0
	}
}

func (s *Share) resize(n int64) {
	s.guard.drop(s.kind, s.n)
	s.guard.add(s.kind, n)
	s.n = n
}
