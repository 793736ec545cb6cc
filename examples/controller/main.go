// Command controller provisions databases: it has two reconcilers on controller-runtime, which run against any
// Kubernetes API server. README.md says how to start it.
package main

import "stele.dev/stele/examples/controller/provision"

func main() { provision.Main() }
