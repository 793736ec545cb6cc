package audit

import "os"

// WithSteps sets a function that is called before each step that a crash may follow. It may fail the step.
func (o Options) WithSteps(step func(name string) error) Options {
	o.step = step
	return o
}

// WithFile sets a function that replaces the file.
func (o Options) WithFile(wrap func(*os.File) File) Options {
	o.wrap = func(f *os.File) file { return wrap(f) }
	return o
}

// File is an open file.
type File = file
