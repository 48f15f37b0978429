package result

import "time"

// Header is the first line of a result file: where and how its rows were measured.
type Header struct {
	VKAttn   string    `json:"vkattn"` // library version
	Command  []string  `json:"command,omitempty"`
	Started  time.Time `json:"started"`
	Host     string    `json:"host,omitempty"` // operating system and architecture
	Device   string    `json:"device"`
	Driver   string    `json:"driver"`
	API      string    `json:"api,omitempty"` // Vulkan version
	CPU      bool      `json:"cpu,omitempty"` // the device is a CPU
	Tiers    []string  `json:"tiers,omitempty"`
	Matrices []string  `json:"matrices,omitempty"`

	Limits     map[string]uint64 `json:"limits,omitempty"`
	Extensions []string          `json:"extensions,omitempty"`

	Peaks Peaks `json:"peaks"`

	Rounds int `json:"rounds,omitempty"`
}

// Peaks are ceilings measured on the device in the same run.
type Peaks struct {
	MatrixTFLOPS float64 `json:"matrix_tflops,omitempty"` // fp16 matrix multiply-add with fp32 accumulation, registers only
	FP32TFLOPS   float64 `json:"fp32_tflops,omitempty"`   // fp32 multiply-add, registers only
	CopyGBps     float64 `json:"copy_GBps,omitempty"`     // device copy, bytes read + bytes written, 10⁹ a second
}
