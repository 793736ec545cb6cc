package archive

// turn is a lock that is held while the log's backend is read, perhaps for long. It is a channel, unlike a sync.Mutex, so
// that simulated time goes on while others wait for it.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }
