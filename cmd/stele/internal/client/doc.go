// Package client reads a control plane for the commands: which kinds it serves, objects now and at past revisions, the
// changes in its log, and its policies. It uses the same API as every other client.
package client
