package call

import "io"

// Kept is the body of an answer, as far as it is kept to be recorded.
type Kept struct {
	// Limit is the maximum size of a body that is kept; 0 to keep none.
	Limit     int
	MediaType string
	Text      []byte // nil if the body is larger than the limit
	Cut       bool   // the body is larger than the limit
}

// keeping returns a writer that also keeps the body, if it is to be kept.
func (c *Call) keeping(w io.WriteCloser, contentType string) io.WriteCloser {
	if c.Kept.Limit == 0 {
		return w
	}
	c.Kept.MediaType, c.Kept.Text, c.Kept.Cut = contentType, nil, false
	return &keeper{w, &c.Kept}
}

// keeper is a writer that keeps what is written.
type keeper struct {
	io.WriteCloser
	kept *Kept
}

// Write implements io.Writer.
func (k *keeper) Write(b []byte) (int, error) {
	switch kept := k.kept; {
	case kept.Cut:
	case len(kept.Text)+len(b) > kept.Limit:
		kept.Text, kept.Cut = nil, true
	default:
		kept.Text = append(kept.Text, b...)
	}
	return k.WriteCloser.Write(b)
}
