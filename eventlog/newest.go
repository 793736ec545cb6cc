package eventlog

// Newest returns the newest position that this process knows, or the zero Head if it has read nothing yet. changed is closed
// when there may be a newer one.
func (l *Log) Newest() (newest Head, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.recent); n > 0 {
		newest = l.recent[n-1].Head()
	}
	return newest, l.grown
}
