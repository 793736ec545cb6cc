//go:build !linux

package archive

import "os"

// forget asks the system to drop a synced file from its cache, where that is possible.
func forget(*os.File) {}
