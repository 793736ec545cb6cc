package archive

// OpenWith opens an archive, and calls before ahead of every change on the disk. Its error is that of the change.
func OpenWith(o Options, before func(op, name string) error) (*Archive, error) {
	o.before = before
	return Open(o)
}
