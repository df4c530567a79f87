package image

import "slices"

// Full returns the recipe of the template "full": base with what documents, media and
// programs in other languages need. It installs a few Python packages that Debian 12 lacks
// from PyPI.
func Full() Recipe {
	r := Base()
	r.Name = "full"
	r.Packages = slices.Concat(r.Packages, []string{
		// documents
		"libreoffice-writer-nogui", "libreoffice-calc-nogui", "libreoffice-impress-nogui", "pandoc", "poppler-utils",
		"qpdf", "ghostscript",
		"tesseract-ocr", "graphviz",
		// images, sound and video
		"imagemagick", "librsvg2-bin", "ffmpeg",
		"fonts-liberation2", "fonts-noto-core", "fonts-noto-cjk", "fonts-noto-color-emoji",
		// languages
		"r-base-core", "r-cran-irkernel", "r-cran-ggplot2", "r-cran-dplyr", "golang-go", "default-jdk-headless", "ruby",
		"php-cli", "npm", "gcc", "g++",
		"vim-tiny", "p7zip-full",
		// Python
		"python3-sklearn", "python3-seaborn", "python3-statsmodels", "python3-plotly", "python3-networkx",
		"python3-sympy", "python3-reportlab",
		"python3-html5lib", "python3-markdown",
	})
	r.Run = append([]string{
		"python3 -m pip install --no-cache-dir python-pptx==1.0.2 pdfplumber==0.11.10 pytesseract==0.3.13",
		// Policies for servers that convert files of strangers; here the sandbox is the boundary.
		`sed -i '/pattern="\(PDF\|PS\|EPS\|XPS\)"/d' /etc/ImageMagick-6/policy.xml`,
	}, r.Run...)
	return r
}

// Standard returns the recipes that need no file, by name.
func Standard() map[string]Recipe {
	return map[string]Recipe{"base": Base(), "full": Full(), "desktop": Desktop()}
}
