// Command interface prints what SPIR-V modules ask of the program that runs them, as tools/glslc.sh writes it to the manifest: one line
// of JSON for each file, in order. The modules must have been compiled without optimisation, which strips names.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"

	"github.com/vkattn/vkattn/shaders"
)

func main() {
	for _, file := range os.Args[1:] {
		line, err := read(file)
		if err != nil {
			fmt.Fprintf(os.Stderr, "interface: %s: %v\n", file, err)
			os.Exit(1)
		}
		fmt.Println(line)
	}
}

func read(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	words := make([]uint32, len(raw)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	i, err := shaders.ReadInterface(words)
	if err != nil {
		return "", err
	}
	line, err := json.Marshal(i)
	return string(line), err
}
