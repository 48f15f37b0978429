//go:build !cgo

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "embed: this example has a device of vulkan-go's, which needs cgo: build it with CGO_ENABLED=1 and a C "+
		"compiler. vkattn itself needs neither; see the other examples")
	os.Exit(1)
}
