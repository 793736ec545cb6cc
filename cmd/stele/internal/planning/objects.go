package planning

import (
	"errors"
	"fmt"
	"io"
	"os"

	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/core/resources/plans"
)

// howToExport says how to get a file for --objects.
const howToExport = "write it for example by kubectl get databases.example.com,namespaces -A -o json"

// fromFile reports whether --objects names a file.
func (o *options) fromFile() bool {
	return o.objects != "" && o.objects != "live" && o.objects != "none"
}

// readObjects reads the file that --objects names. It returns nil if it names none.
func (o *options) readObjects(stdin io.Reader, targets []compiling.Target) (plans.Source, error) {
	if !o.fromFile() {
		return nil, nil
	}
	if len(targets) > 1 {
		return nil, fmt.Errorf("--objects %s: the objects of a file are those of one control plane, and there are %d bundles; make a plan of each", o.objects, len(targets))
	}
	in, name := stdin, "-"
	if o.objects != "-" {
		f, err := os.Open(o.objects)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("--objects %s: want live, none, - or a file, and there is no such file", o.objects)
		}
		if err != nil {
			return nil, fmt.Errorf("--objects: %w", err)
		}
		defer f.Close()
		in, name = f, o.objects
	}
	source, err := plans.ReadObjects(in)
	if err != nil {
		return nil, fmt.Errorf("--objects %s cannot be read: %w; %s", name, err, howToExport)
	}
	return source, nil
}
